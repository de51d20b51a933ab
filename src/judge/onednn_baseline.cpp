// SPDX-License-Identifier: Apache-2.0
// The CPU baseline: oneDNN's matmul with weights in the layout that oneDNN itself prefers. All
// primitives and reordered weights are made in prepare(), for every case of the problem.
#include "judge/contender.hpp"

#include <slimgemm/error.hpp>

#include "support/aligned_buffer.hpp"

#if SLIMGEMM_HAVE_ONEDNN

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace slimgemm::judge {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

dnnl::matmul::primitive_desc make_matmul(const memory::desc& x, const memory::desc& weights,
                                         const memory::desc& out, const dnnl::engine& engine) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, x, weights, out};
#else
  return {dnnl::matmul::desc(x, weights, out), engine};
#endif
}

// The weights of a shape in one layout, in memory of the same kind as the contender's. Shapes that
// want the same layout share them.
struct Reordered {
  std::int64_t rows;
  memory::desc layout;
  AlignedBuffer bytes;
  memory weights;
};

// What run() needs for one (layer, m).
struct Call {
  dnnl::matmul matmul;
  dnnl::reorder cast;  // FP32 layers: x from BF16; else empty
  memory x;            // BF16, the caller's
  memory x_f32;        // FP32 layers: the cast x
  memory out;          // the caller's
  memory weights;
  std::int64_t weight_bytes = 0;
  std::string implementation;
};

class OneDnnBaseline : public Contender {
 public:
  explicit OneDnnBaseline(Problem problem) : problem_(std::move(problem)) {}

  [[nodiscard]] std::string name() const override { return "onednn"; }

  void prepare(const WeightSet& weights) override {
    try {
      for (const Case& c : problem_.cases) {
        const auto key = std::pair(c.layer, c.m);
        if (!calls_.contains(key)) calls_.emplace(key, make_call(c, weights));
      }
    } catch (const dnnl::error& error) {
      throw Error(ErrorCode::unsupported, std::string("oneDNN has no such matmul for this CPU (") +
                                              error.what() +
                                              "): BF16 needs AVX-512; choose another baseline");
    }
  }

  void run(Layer layer, const void* x, std::int64_t m, void* out, void*) override {
    Call& call = find(layer, m);
    // oneDNN takes the source as a plain pointer and does not write through it.
    call.x.set_data_handle(const_cast<void*>(x));
    call.out.set_data_handle(out);
    try {
      const bool cast = static_cast<bool>(call.cast);
      if (cast) call.cast.execute(stream_, call.x, call.x_f32);
      call.matmul.execute(stream_, {{DNNL_ARG_SRC, cast ? call.x_f32 : call.x},
                                    {DNNL_ARG_WEIGHTS, call.weights},
                                    {DNNL_ARG_DST, call.out}});
      stream_.wait();
    } catch (const dnnl::error& error) {
      throw Error(ErrorCode::device_error, std::string("oneDNN matmul failed: ") + error.what());
    }
  }

  [[nodiscard]] std::int64_t weight_bytes(Layer layer, std::int64_t m) const override {
    return find(layer, m).weight_bytes;
  }

  [[nodiscard]] std::string describe(Layer layer, std::int64_t m) const override {
    return find(layer, m).implementation;
  }

 private:
  Call make_call(const Case& c, const WeightSet& set) {
    const WeightMatrix& w = set.at(static_cast<std::size_t>(c.layer));
    const std::int64_t rows = std::min(resolve(c, problem_.layers).n, w.n);
    const Type type = w.dtype == DType::bf16 ? Type::bf16 : Type::f32;
    const memory::desc x({c.m, w.k}, type, Tag::ab);
    const memory::desc out({c.m, rows}, type, Tag::ab);
    const auto plan = make_matmul(x, memory::desc({w.k, rows}, type, Tag::any), out, engine_);

    Call call;
    call.matmul = dnnl::matmul(plan);
    call.x = memory({{c.m, w.k}, Type::bf16, Tag::ab}, engine_, nullptr);
    call.out = memory(out, engine_, nullptr);
    call.weights = reordered(c.layer, w, rows, type, plan.weights_desc());
    call.weight_bytes = rows * w.k * size_bytes(w.dtype);
    call.implementation = plan.impl_info_str();
    if (type == Type::f32) {
      call.x_f32 = memory(x, engine_);
      call.cast = dnnl::reorder(call.x, call.x_f32);
    }
    return call;
  }

  memory reordered(Layer layer, const WeightMatrix& w, std::int64_t rows, Type type,
                   const memory::desc& layout) {
    for (const Reordered& r : reordered_[layer]) {
      if (r.rows == rows && r.layout == layout) return r.weights;
    }
    // Row-major rows x k is, read as k x rows, column-major. The source is only read.
    memory dense({{w.k, rows}, type, Tag::ba}, engine_, const_cast<void*>(w.host));
    AlignedBuffer bytes(layout.get_size());
    memory weights(layout, engine_, bytes.data());
    dnnl::reorder(dense, weights).execute(stream_, dense, weights);
    stream_.wait();
    reordered_[layer].push_back({rows, layout, std::move(bytes), weights});
    return weights;
  }

  Call& find(Layer layer, std::int64_t m) {
    return const_cast<Call&>(std::as_const(*this).find(layer, m));
  }
  const Call& find(Layer layer, std::int64_t m) const {
    const auto found = calls_.find({layer, m});
    if (found != calls_.end()) return found->second;
    throw Error(ErrorCode::invalid_argument,
                "the oneDNN baseline has nothing prepared for " +
                    problem_.layers.at(static_cast<std::size_t>(layer)).name +
                    " at m = " + std::to_string(m) + ": prepare() serves the judge's cases only");
  }

  Problem problem_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Layer, std::deque<Reordered>> reordered_;
  std::map<std::pair<Layer, std::int64_t>, Call> calls_;
};

}  // namespace

std::unique_ptr<Contender> make_onednn_baseline(const Problem& problem) {
  return std::make_unique<OneDnnBaseline>(problem);
}

}  // namespace slimgemm::judge

#else

namespace slimgemm::judge {

std::unique_ptr<Contender> make_onednn_baseline(const Problem&) {
  throw Error(ErrorCode::unsupported,
              "this build has no oneDNN baseline: install libdnnl-dev and configure again");
}

}  // namespace slimgemm::judge

#endif
