// SPDX-License-Identifier: Apache-2.0
// Splitting host work over threads: the one helper for codec, CPU backend and judge.
#pragma once

#include <cstdint>
#include <functional>

namespace slimgemm {

/// Threads to use for a request of `threads` (0: every hardware thread), at least 1.
int resolve_threads(int threads);

/// Calls body(begin, end) on disjoint ranges that cover [0, count), on up to `threads` threads, the
/// calling thread among them; ranges are whole multiples of `grain` but for the last. Returns when
/// all are done; rethrows the first exception. Threads are kept between calls (one pool a process).
void parallel_for(std::int64_t count, std::int64_t grain, int threads,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

/// The same with a grain of 1 for bodies that wait, for a disk say: on threads of their own, more
/// than there are cores if wanted, so that they keep none of parallel_for's from computing.
void parallel_for_waiting(std::int64_t count, int threads,
                          const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace slimgemm
