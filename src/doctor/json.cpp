// SPDX-License-Identifier: Apache-2.0
// docs/inspecting.md documents every field.
#include "doctor/diagnosis.hpp"

#include <slimgemm/error.hpp>

#if SLIMGEMM_HAVE_JSON

#include <nlohmann/json.hpp>

namespace slimgemm::doctor {
namespace {

using Json = nlohmann::ordered_json;

Json tests_json(const std::vector<SelfTest>& tests) {
  Json list = Json::array();
  for (const SelfTest& test : tests) {
    list.push_back({{"what", test.what},
                    {"kernels", test.kernels},
                    {"passed", test.problem.empty()},
                    {"problem", test.problem}});
  }
  return list;
}

Json build_json(const Machine& machine) {
  Json parts = Json::object();
  for (const BuildPart& part : machine.parts) parts[part.key] = part.built;
  parts["cuda"] = !machine.cuda.toolkit.empty();
  return {{"version", machine.version},
          {"commit", machine.commit},
          {"compiler", machine.compiler},
          {"cuda_toolkit", machine.cuda.toolkit},
          {"parts", std::move(parts)},
          {"gpu_kernels", machine.tables.stream + machine.tables.tile},
          {"tuned_plans", machine.tables.tuned_plans}};
}

Json processor_json(const Machine& machine) {
  const Processor& cpu = machine.processor;
  return {{"architecture", cpu.architecture}, {"model", cpu.model},
          {"threads", cpu.threads},           {"memory_bytes", cpu.memory_bytes},
          {"instructions", cpu.instructions}, {"kernels", cpu.kernels},
          {"chosen_kernels", cpu.chosen},     {"tests", tests_json(machine.cpu_tests)}};
}

Json gpu_json(const Machine& machine) {
  Json devices = Json::array();
  for (const judge::CudaDevice& device : machine.cuda.devices) {
    devices.push_back({{"ordinal", device.ordinal},
                       {"name", device.name},
                       {"compute_capability", device.compute_capability},
                       {"sm_count", device.sm_count},
                       {"memory_bytes", device.memory_bytes},
                       {"runs_kernels", device.runs_kernels}});
  }
  Json listed = Json::array();
  for (const judge::DriverGpu& gpu : machine.driver.gpus) {
    listed.push_back({{"name", gpu.name},
                      {"compute_capability", gpu.compute_capability},
                      {"memory_bytes", gpu.memory_bytes}});
  }
  return {{"driver", machine.driver.version},        {"driver_gpus", std::move(listed)},
          {"driver_cuda", machine.cuda.driver_cuda}, {"cublas", machine.cuda.cublas},
          {"devices", std::move(devices)},           {"tests", tests_json(machine.gpu_tests)}};
}

}  // namespace

std::string json_report(const Machine& machine, const Diagnosis& diagnosis) {
  Json findings = Json::array();
  for (const Section& section : diagnosis.sections) {
    for (const Finding& finding : section.findings) {
      findings.push_back({{"key", finding.key},
                          {"level", name(finding.level)},
                          {"text", finding.text},
                          {"remedy", finding.remedy}});
    }
  }
  const Json json = {{"schema", "slimgemm-doctor-1"},    {"cpu_works", diagnosis.cpu_works},
                     {"gpu_works", diagnosis.gpu_works}, {"has_problem", diagnosis.has_problem()},
                     {"build", build_json(machine)},     {"processor", processor_json(machine)},
                     {"gpu", gpu_json(machine)},         {"findings", std::move(findings)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace slimgemm::doctor

#else

namespace slimgemm::doctor {

std::string json_report(const Machine&, const Diagnosis&) {
  throw Error(ErrorCode::unsupported,
              "--json needs a build with nlohmann-json (nlohmann-json3-dev): install it, configure "
              "and build again");
}

}  // namespace slimgemm::doctor

#endif
