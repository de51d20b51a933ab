// SPDX-License-Identifier: Apache-2.0
#include "support/parallel.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace slimgemm {
namespace {

TEST(Parallel, ResolveThreads) {
  EXPECT_EQ(resolve_threads(1), 1);
  EXPECT_EQ(resolve_threads(5), 5);
  EXPECT_GE(resolve_threads(0), 1);
  try {
    resolve_threads(-3);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("threads = -3"), std::string::npos);
  }
}

TEST(Parallel, RangesCoverEverythingOnce) {
  for (const std::int64_t count : {1, 2, 7, 64, 1000, 4097}) {
    for (const std::int64_t grain : {1, 3, 64, 5000}) {
      for (const int threads : {0, 1, 2, 5, 16}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        std::atomic<int> ragged{0};
        parallel_for(count, grain, threads, [&](std::int64_t begin, std::int64_t end) {
          if (begin % grain != 0 || (end % grain != 0 && end != count) || begin >= end) ++ragged;
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        EXPECT_EQ(ragged, 0);
        for (const auto& times : seen)
          ASSERT_EQ(times, 1) << count << " " << grain << " " << threads;
      }
    }
  }
}

TEST(Parallel, BodiesThatWaitHaveThreadsOfTheirOwn) {
  // All four wait for each other, which needs four threads whatever the number of cores; the calls
  // of parallel_for meanwhile are not held up by them.
  std::atomic<int> waiting{0};
  std::atomic<bool> computed{false};
  std::thread reader([&] {
    parallel_for_waiting(4, 4, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(end, begin + 1);
      ++waiting;
      while (waiting < 4 || !computed) std::this_thread::yield();
    });
  });
  while (waiting < 4) std::this_thread::yield();
  std::atomic<std::int64_t> sum{0};
  parallel_for(100, 1, 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum += i;
  });
  EXPECT_EQ(sum, 4950);
  computed = true;
  reader.join();
  EXPECT_THROW(parallel_for_waiting(
                   3, 2, [](std::int64_t, std::int64_t) { throw std::runtime_error("broken"); }),
               std::runtime_error);
  parallel_for_waiting(0, 4, [](std::int64_t, std::int64_t) { FAIL() << "nothing to do"; });
}

TEST(Parallel, NothingToDo) {
  bool called = false;
  parallel_for(0, 1, 4, [&](std::int64_t, std::int64_t) { called = true; });
  parallel_for(-5, 1, 4, [&](std::int64_t, std::int64_t) { called = true; });
  EXPECT_FALSE(called);
}

TEST(Parallel, ACountNearTheLimitDoesNotOverflow) {
  constexpr std::int64_t huge = INT64_MAX;
  std::atomic<std::int64_t> covered{0};
  parallel_for(huge, huge / 3, 3,
               [&](std::int64_t begin, std::int64_t end) { covered += end - begin; });
  EXPECT_EQ(covered, huge);
}

TEST(Parallel, SmallCountsRunOnTheCaller) {
  std::thread::id used;
  parallel_for(10, 10, 8, [&](std::int64_t, std::int64_t) { used = std::this_thread::get_id(); });
  EXPECT_EQ(used, std::this_thread::get_id());
}

// Two bodies wait for each other, so one thread alone would never end.
TEST(Parallel, UsesSeveralThreads) {
  std::atomic<int> arrived{0};
  parallel_for(2, 1, 2, [&](std::int64_t, std::int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(Parallel, NotMoreThreadsThanAskedFor) {
  parallel_for(64, 1, 16, [](std::int64_t, std::int64_t) {});  // the pool now has many
  std::mutex mutex;
  std::set<std::thread::id> ids;
  parallel_for(64, 1, 2, [&](std::int64_t, std::int64_t) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_LE(ids.size(), 2U);
}

TEST(Parallel, RethrowsOneExceptionAndStaysUsable) {
  for (int trial = 0; trial < 50; ++trial) {
    EXPECT_THROW(parallel_for(100, 1, 4,
                              [](std::int64_t begin, std::int64_t) {
                                if (begin % 3 == 0) throw std::out_of_range("here");
                              }),
                 std::out_of_range);
  }
  std::atomic<std::int64_t> sum{0};
  parallel_for(100, 1, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum += i;
  });
  EXPECT_EQ(sum, 4950);
}

TEST(Parallel, AnExceptionStopsTheRest) {
  std::atomic<int> calls{0};
  EXPECT_THROW(parallel_for(1000000, 1, 2,
                            [&](std::int64_t, std::int64_t) {
                              ++calls;
                              throw std::runtime_error("stop");
                            }),
               std::runtime_error);
  EXPECT_LE(calls, 2);
}

TEST(Parallel, NestedCallsRunSerially) {
  std::atomic<int> foreign{0};
  std::atomic<std::int64_t> sum{0};
  parallel_for(16, 1, 4, [&](std::int64_t begin, std::int64_t end) {
    const auto outer = std::this_thread::get_id();
    for (std::int64_t i = begin; i < end; ++i) {
      parallel_for(100, 1, 4, [&](std::int64_t b, std::int64_t e) {
        if (std::this_thread::get_id() != outer) ++foreign;
        sum += e - b;
      });
    }
  });
  EXPECT_EQ(foreign, 0);
  EXPECT_EQ(sum, 1600);
}

TEST(Parallel, CallsFromSeveralThreadsAtOnce) {
  std::vector<std::int64_t> sums(8);
  std::vector<std::thread> callers;
  for (std::size_t c = 0; c < sums.size(); ++c) {
    callers.emplace_back([&sums, c] {
      for (int trial = 0; trial < 200; ++trial) {
        std::atomic<std::int64_t> sum{0};
        parallel_for(200, 1, 1 + static_cast<int>(c % 4),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) sum += i;
                     });
        sums[c] += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::int64_t sum : sums) EXPECT_EQ(sum, 200 * 19900);
}

// exit() from inside a body, on whichever thread, ends the process: nothing waits for the pool.
TEST(ParallelDeathTest, ExitInsideABody) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(parallel_for(4, 1, 4,
                           [](std::int64_t, std::int64_t) {
                             static std::once_flag once;
                             std::call_once(once, [] { std::exit(7); });  // NOLINT(concurrency-*)
                           }),
              testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace slimgemm
