// SPDX-License-Identifier: Apache-2.0
// Writes the golden files into a folder: write_golden tests/golden. Only for a new version of the
// format: the files of a released version never change.
#include "codec/checksum.hpp"
#include "golden/cases.hpp"

#include <fstream>
#include <iostream>
#include <map>

namespace {

using namespace slimgemm;

void write(const std::string& path, const test::Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw Error(ErrorCode::io_error, "cannot write " + path);
  std::cout << path << ": " << bytes.size() << " bytes\n";
}

void write_all(const std::string& folder) {
  std::map<std::string, test::Bytes> written;
  for (const golden::GoodFile& good : golden::good_files()) {
    const test::Bytes& bytes = written[good.name] = test::copy_bytes(golden::pack_elements(good));
    write(folder + "/" + good.name + ".slimpack", bytes);
  }
  for (const golden::BadFile& bad : golden::bad_files()) {
    write(folder + "/" + bad.name + ".slimpack", golden::spoil(bad, written.at(bad.good)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_golden FOLDER\n";
    return 2;
  }
  try {
    if (!checksums_available()) {
      throw Error(ErrorCode::unsupported, "golden files need a build with xxhash.h");
    }
    write_all(argv[1]);
  } catch (const Error& e) {
    std::cerr << "write_golden: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
