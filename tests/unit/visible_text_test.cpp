// SPDX-License-Identifier: Apache-2.0
#include "support/visible_text.hpp"

#include <gtest/gtest.h>

namespace slimgemm {
namespace {

TEST(VisibleText, KeepsLetters) {
  for (const char* text : {"model.layers.0.weight", "Gewichte für Köln", "模型", "🙂", ""}) {
    EXPECT_EQ(visible_text(text), text);
  }
}

TEST(VisibleText, EscapesWhatSteersATerminal) {
  EXPECT_EQ(visible_text("a\x1b[31m\n\x7f"), "a\\x1b[31m\\x0a\\x7f");
  EXPECT_EQ(visible_text("\xC2\x9B"
                         "31m"),
            "\\xc2\\x9b31m");                                        // C1: CSI in one character
  EXPECT_EQ(visible_text("\xE2\x80\xAEtxt"), "\\xe2\\x80\\xaetxt");  // right to left
  EXPECT_EQ(visible_text("\xE2\x81\xA6"), "\\xe2\\x81\\xa6");
  EXPECT_EQ(visible_text("\xEF\xBB\xBF"), "\\xef\\xbb\\xbf");
  EXPECT_EQ(visible_text("\xF3\xA0\x81\x81"), "\\xf3\\xa0\\x81\\x81");  // a tag
}

TEST(VisibleText, EscapesWhatIsNotUtf8) {
  EXPECT_EQ(visible_text("\x9B"), "\\x9b");
  EXPECT_EQ(visible_text("a\xC3"), "a\\xc3");
  EXPECT_EQ(visible_text("\xC0\x9B"), "\\xc0\\x9b");                    // longer than need be
  EXPECT_EQ(visible_text("\xE0\x82\x9B"), "\\xe0\\x82\\x9b");           // the same
  EXPECT_EQ(visible_text("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // half of a pair
  EXPECT_EQ(visible_text("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(visible_text("\xFF"
                         "a"),
            "\\xffa");
}

TEST(VisibleText, CutsBetweenCharacters) {
  EXPECT_EQ(visible_text("abcdef", 3), "abc... (6 bytes)");
  EXPECT_EQ(visible_text("ab\xC3\xBC", 3), "ab... (4 bytes)");
  EXPECT_EQ(visible_text("abc", 3), "abc");
}

TEST(VisibleText, KeepsLinesWhereAsked) {
  EXPECT_EQ(visible_text("a\nb\r\n", std::string_view::npos, true), "a\nb\\x0d\n");
}

}  // namespace
}  // namespace slimgemm
