// SPDX-License-Identifier: Apache-2.0
// The inner loops of the CPU backend: a block of tokens against decoded weights, whatever they were
// decoded from. A part of gemm-inl.hpp, which describes Ops.

#if !SLIMGEMM_UNROLL_LOOPS
#define SLIMGEMM_UNROLL
#elif defined(__clang__)
#define SLIMGEMM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SLIMGEMM_UNROLL _Pragma("GCC unroll 32")
#endif

// One block of tokens against the decoded panel of one row tile.
struct BlockArgs {
  const std::uint8_t* weights;   // decoded panel
  const std::uint8_t* x;         // the block's chunks of this panel
  float* sums;                   // of the first row pair and the block's first token
  std::int64_t sums_row_stride;  // from row pair to row pair
  int steps;
  bool first;                    // sums start at zero
  int prefetch_lines;            // to ask for in the course of the block, from `prefetch` on
  const std::uint8_t* prefetch;  // packed weights that are needed next
};

template <class Ops>
class Blocks {
 public:
  using Function = void (*)(const BlockArgs&);
  // Index: tokens of the block - 1.
  static constexpr auto functions() {
    return functions(std::make_index_sequence<Ops::max_tokens>());
  }

 private:
  using Vector = typename Ops::Vector;
  using Sum = typename Ops::Sum;
  static constexpr int parts = chunk_bytes / Ops::vector_bytes;
  static constexpr int lanes = Ops::vector_bytes / 4;
  static constexpr int step_bytes = row_pairs * chunk_bytes;

  static constexpr int row_pairs_at_once(int tokens) {
    int pairs = row_pairs;
    while (pairs > 1 && pairs * tokens > Ops::max_sums) pairs /= 2;
    return pairs;
  }
  template <std::size_t... I>
  static constexpr std::array<Function, sizeof...(I)> functions(std::index_sequence<I...>) {
    return {&multiply<static_cast<int>(I) + 1>...};
  }
  template <int T>
  static void multiply(const BlockArgs& args) {
    constexpr int pairs = row_pairs_at_once(T);
    const int lines = (args.prefetch_lines * pairs + row_pairs - 1) / row_pairs;
    for (int r = 0; r < row_pairs; r += pairs) multiply_pairs<pairs, T>(args, r, lines);
  }
  template <int Pairs, int T>
  static void multiply_pairs(const BlockArgs& args, int first_pair, int prefetch_lines);
};

// Pairs x T sums stay in registers over all steps.
template <class Ops>
template <int Pairs, int T>
void Blocks<Ops>::multiply_pairs(const BlockArgs& args, int first_pair, int prefetch_lines) {
  const std::int64_t row_stride = args.sums_row_stride;
  float* const sums_at = args.sums + first_pair * row_stride;
  Sum sums[Pairs][T];
  SLIMGEMM_UNROLL
  for (int r = 0; r < Pairs; ++r) {
    SLIMGEMM_UNROLL
    for (int t = 0; t < T; ++t) {
      sums[r][t] = args.first ? Ops::zero() : Ops::load_sum(sums_at + r * row_stride + t * lanes);
    }
  }
  // Evenly spread: one more line whenever the share of the steps passes a whole number.
  const std::uint8_t* ahead = args.prefetch + first_pair / Pairs * prefetch_lines * line_bytes;
  int due = 0;
  const std::uint8_t* weights = args.weights + first_pair * chunk_bytes;
  const std::uint8_t* x = args.x;
  for (int s = 0; s < args.steps; ++s) {
    SLIMGEMM_UNROLL
    for (int part = 0; part < parts; ++part) {
      const int offset = part * Ops::vector_bytes;
      Vector w[Pairs];
      SLIMGEMM_UNROLL
      for (int r = 0; r < Pairs; ++r) w[r] = Ops::load(weights + r * chunk_bytes + offset);
      SLIMGEMM_UNROLL
      for (int t = 0; t < T; ++t) {
        const Vector xs = Ops::load_register(x + t * chunk_bytes + offset);
        SLIMGEMM_UNROLL
        for (int r = 0; r < Pairs; ++r) sums[r][t] = Ops::multiply_add(w[r], xs, sums[r][t]);
      }
    }
    for (due += prefetch_lines; due >= args.steps; due -= args.steps) {
      prefetch_far(ahead);
      ahead += line_bytes;
    }
    weights += step_bytes;
    x += T * chunk_bytes;
  }
  SLIMGEMM_UNROLL
  for (int r = 0; r < Pairs; ++r) {
    SLIMGEMM_UNROLL
    for (int t = 0; t < T; ++t) Ops::store_sum(sums[r][t], sums_at + r * row_stride + t * lanes);
  }
}
