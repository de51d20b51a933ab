// SPDX-License-Identifier: Apache-2.0
// The diagnosis of machines that are made up, and the kernels of the one at hand.
#include "doctor/diagnosis.hpp"
#include "unit/text_test_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#if SLIMGEMM_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

namespace slimgemm::doctor {
namespace {

Machine cpu_machine() {
  Machine machine;
  machine.version = "1.2.3";
  machine.commit = "abc";
  machine.compiler = "GCC 12";
  machine.parts = {{"json", "reports", "nlohmann-json", "nlohmann-json3-dev", "no reports", true}};
  machine.processor.architecture = "x86_64";
  machine.processor.model = "Some CPU";
  machine.processor.threads = 4;
  machine.processor.instructions = {"AVX2"};
  machine.processor.kernels = {"scalar", "avx2"};
  machine.processor.chosen = "avx2";
  machine.tables = {4, 2, 7, ""};
  machine.driver.problem = "its library is not installed";
  machine.cpu_tests = {{"scalar", "k", ""}, {"avx2", "k", ""}};
  return machine;
}

Machine h200_machine() {
  Machine machine = cpu_machine();
  machine.driver = {"580.65.06", "", {{"NVIDIA H200", "9.0", 150ULL << 30}}};
  machine.cuda = {.toolkit = "13.0",
                  .driver_cuda = "13.0",
                  .problem = "",
                  .devices = {{0, "NVIDIA H200", "9.0", 132, 150109880320, true}},
                  .cublas = "13.1.0, libcublasLt.so.13"};
  machine.gpu_tests = {{"NVIDIA H200, device 0", "stream/x", ""}};
  return machine;
}

const Finding& find(const Diagnosis& diagnosis, const std::string& key) {
  for (const Section& section : diagnosis.sections) {
    for (const Finding& finding : section.findings) {
      if (finding.key == key) return finding;
    }
  }
  static const Finding none{"none", Level::problem, "no finding of that key", ""};
  return none;
}

TEST(Doctor, MachineWithoutGpuHasNoProblem) {
  const Diagnosis diagnosis = diagnose(cpu_machine());
  EXPECT_FALSE(diagnosis.has_problem());
  EXPECT_TRUE(diagnosis.cpu_works);
  EXPECT_FALSE(diagnosis.gpu_works);
  EXPECT_EQ(find(diagnosis, "gpu.backend").level, Level::absent);
  EXPECT_TRUE(contains(find(diagnosis, "gpu.backend").remedy, "-DSLIMGEMM_CUDA=ON"));
  EXPECT_TRUE(contains(find(diagnosis, "gpu.driver").text, "its library is not installed"));
}

TEST(Doctor, HopperWithWorkingKernels) {
  const Diagnosis diagnosis = diagnose(h200_machine());
  EXPECT_FALSE(diagnosis.has_problem());
  EXPECT_TRUE(diagnosis.gpu_works);
  EXPECT_TRUE(contains(find(diagnosis, "gpu.device.0").text, "132 SMs, 139.8 GiB"));
  EXPECT_TRUE(contains(find(diagnosis, "gpu.driver").text, "580.65.06, for CUDA up to 13.0"));
  EXPECT_TRUE(contains(find(diagnosis, "gpu.kernels").text, "4 for few tokens"));
}

TEST(Doctor, HopperThatTheBuildDoesNotUse) {
  Machine machine = h200_machine();
  machine.cuda = {};
  machine.gpu_tests.clear();
  const Diagnosis diagnosis = diagnose(machine);
  EXPECT_EQ(find(diagnosis, "gpu.backend").level, Level::problem);
  EXPECT_TRUE(contains(find(diagnosis, "gpu.backend").remedy, "build again"));
  EXPECT_FALSE(diagnosis.gpu_works);
}

TEST(Doctor, DriverTooOldForTheToolkit) {
  Machine machine = h200_machine();
  machine.cuda.devices.clear();
  machine.cuda.driver_cuda = "12.6";
  machine.cuda.problem = "cudaErrorInsufficientDriver (CUDA driver version is insufficient)";
  machine.gpu_tests.clear();
  const Finding finding = find(diagnose(machine), "gpu.devices");
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_TRUE(contains(finding.text, "supports CUDA up to 12.6, this build needs 13.0"));
  EXPECT_TRUE(contains(finding.remedy, "newer driver"));
}

TEST(Doctor, DevicesThatTheEnvironmentHides) {
  Machine machine = h200_machine();
  machine.cuda.devices.clear();
  machine.cuda.problem = "cudaErrorNoDevice (no CUDA-capable device is detected)";
  machine.gpu_tests.clear();
  EXPECT_TRUE(contains(find(diagnose(machine), "gpu.devices").text, "though the driver lists"));
  machine.hides_devices = true;
  machine.visible_devices = "-1";
  const Finding finding = find(diagnose(machine), "gpu.devices");
  EXPECT_TRUE(contains(finding.text, "CUDA_VISIBLE_DEVICES is \"-1\""));
  EXPECT_TRUE(contains(finding.remedy, "unset CUDA_VISIBLE_DEVICES"));
}

TEST(Doctor, GpuOfAnotherGeneration) {
  Machine machine = h200_machine();
  machine.driver.gpus = {{"NVIDIA A100", "8.0", 80ULL << 30}};
  machine.cuda.devices = {{0, "NVIDIA A100", "8.0", 108, 80ULL << 30, false}};
  machine.gpu_tests.clear();
  const Diagnosis diagnosis = diagnose(machine);
  EXPECT_FALSE(diagnosis.has_problem());
  EXPECT_EQ(find(diagnosis, "gpu.device.0").level, Level::absent);
  EXPECT_TRUE(contains(find(diagnosis, "gpu.device.0").text, "for 9.0 (Hopper) alone"));
}

TEST(Doctor, WrongResultsAreAProblem) {
  Machine machine = h200_machine();
  machine.cpu_tests[1].problem = "output 3 of token 0 is 1, not 2";
  machine.gpu_tests[0].problem = "out of memory";
  const Diagnosis diagnosis = diagnose(machine);
  EXPECT_TRUE(diagnosis.has_problem());
  EXPECT_FALSE(diagnosis.cpu_works);
  EXPECT_FALSE(diagnosis.gpu_works);
  EXPECT_EQ(find(diagnosis, "cpu.test.avx2").level, Level::problem);
  EXPECT_EQ(find(diagnosis, "cpu.test.scalar").level, Level::ok);
}

TEST(Doctor, MissingPartSaysWhatToInstall) {
  Machine machine = cpu_machine();
  machine.parts[0].built = false;
  const Finding finding = find(diagnose(machine), "build.json");
  EXPECT_EQ(finding.level, Level::absent);
  EXPECT_TRUE(contains(finding.text, "no reports"));
  EXPECT_TRUE(contains(finding.remedy, "apt-get install nlohmann-json3-dev"));
}

TEST(Doctor, TargetThatTheMachineLacks) {
  Machine machine = cpu_machine();
  machine.processor.problem = "SLIMGEMM_CPU_TARGET=avx512: this machine has no such instructions";
  machine.processor.chosen.clear();
  const Diagnosis diagnosis = diagnose(machine);
  EXPECT_EQ(find(diagnosis, "cpu.chosen").level, Level::problem);
  EXPECT_FALSE(diagnosis.cpu_works);
}

TEST(Doctor, TextHasNoLongLinesAndArrowsForRemedies) {
  const Machine machine = cpu_machine();
  const std::string text = text_report(machine, diagnose(machine));
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    EXPECT_LE(end - begin, 100U) << text.substr(begin, end - begin);
    begin = end + 1;
  }
  EXPECT_TRUE(contains(text, "\n           -> for a Hopper GPU"));
  EXPECT_TRUE(contains(text, "Layers on a GPU work: no\n"));
}

#if SLIMGEMM_HAVE_JSON
TEST(Doctor, JsonHasTheFacts) {
  const Machine machine = h200_machine();
  const auto json = nlohmann::json::parse(json_report(machine, diagnose(machine)));
  EXPECT_EQ(json["schema"], "slimgemm-doctor-1");
  EXPECT_EQ(json["gpu_works"], true);
  EXPECT_EQ(json["gpu"]["devices"][0]["memory_bytes"], 150109880320);
  EXPECT_EQ(json["gpu"]["driver_gpus"][0]["name"], "NVIDIA H200");
  EXPECT_EQ(json["processor"]["kernels"].size(), 2U);
  EXPECT_EQ(json["findings"][0]["key"], "build.version");
}
#endif

TEST(Doctor, KernelsOfThisMachineGiveEveryBit) {
  const std::vector<SelfTest> tests = test_cpu();
  ASSERT_FALSE(tests.empty());
  EXPECT_EQ(tests.front().what, "scalar");
  for (const SelfTest& test : tests) {
    EXPECT_EQ(test.problem, "") << test.what;
    EXPECT_TRUE(contains(test.kernels, "cpu/" + test.what + "/split12/")) << test.kernels;
  }
}

TEST(Doctor, ThisMachineHasFacts) {
  const Machine machine = this_machine(false);
  EXPECT_FALSE(machine.version.empty());
  EXPECT_GE(machine.processor.threads, 1U);
  EXPECT_EQ(machine.processor.kernels.front(), "scalar");
  EXPECT_TRUE(machine.cpu_tests.empty());
  EXPECT_EQ(machine.driver.version.empty(), !machine.driver.problem.empty());
}

}  // namespace
}  // namespace slimgemm::doctor
