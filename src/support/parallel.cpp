// SPDX-License-Identifier: Apache-2.0
#include "support/parallel.hpp"

#include <slimgemm/error.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace slimgemm {
namespace {

using Body = std::function<void(std::int64_t, std::int64_t)>;

// Ranges a thread: enough that a thread which starts late or is held up leaves its share to others.
constexpr std::int64_t ranges_per_thread = 8;
constexpr std::size_t max_workers = 1023;

// True while this thread runs a body: a parallel_for inside it runs serially.
thread_local bool inside_body = false;

class InsideBody {
 public:
  InsideBody() { inside_body = true; }
  ~InsideBody() { inside_body = false; }
  InsideBody(const InsideBody&) = delete;
  InsideBody& operator=(const InsideBody&) = delete;
};

// One call of parallel_for. It lives on its caller's stack; the pool's mutex guards all but `next`.
struct Job {
  Job(const Body& body_in, std::int64_t count_in, std::int64_t range_in, int helpers)
      : body(body_in), count(count_in), range(range_in), helpers_wanted(helpers) {}

  void run_ranges() noexcept;

  const Body& body;
  const std::int64_t count;
  const std::int64_t range;
  std::atomic<std::int64_t> next{0};  // index of the next range
  int helpers_wanted;                 // workers that may still join
  int helpers_active = 0;             // workers that joined and have not left
  std::condition_variable left;       // signalled when the last active helper leaves
  std::mutex error_mutex;
  std::exception_ptr error;
};

void Job::run_ranges() noexcept {
  const InsideBody inside;
  const std::int64_t ranges = (count - 1) / range + 1;
  for (;;) {
    const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
    if (i >= ranges) return;
    try {
      const std::int64_t begin = i * range;
      body(begin, begin + std::min(range, count - begin));
    } catch (...) {
      next.store(ranges, std::memory_order_relaxed);  // the rest is not started
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }
}

// Workers join jobs as they are free; a caller never waits for a worker that has not joined its
// job, so calls from several threads, from forked children and at exit all make progress.
class Pool {
 public:
  void run(Job& job) {
    const int helpers = job.helpers_wanted;
    {
      const std::lock_guard lock(mutex_);
      add_workers(static_cast<std::size_t>(helpers));
      jobs_.push_back(&job);
    }
    if (helpers == 1) {
      work_.notify_one();
    } else {
      work_.notify_all();
    }
    job.run_ranges();
    std::unique_lock lock(mutex_);
    std::erase(jobs_, &job);
    job.left.wait(lock, [&] { return job.helpers_active == 0; });
  }

 private:
  // Where the system has no more threads the job runs on fewer.
  void add_workers(std::size_t wanted) {
    wanted = std::min(wanted, max_workers);
    try {
      workers_.reserve(wanted);
      while (workers_.size() < wanted) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
    }
  }

  [[noreturn]] void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [&] { return !jobs_.empty(); });
      Job& job = *jobs_.front();
      if (--job.helpers_wanted == 0) jobs_.pop_front();
      ++job.helpers_active;
      lock.unlock();
      job.run_ranges();
      lock.lock();
      if (--job.helpers_active == 0) job.left.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Job*> jobs_;  // those that still want helpers
  std::vector<std::thread> workers_;
};

// Never destroyed: their threads sleep until the process ends, whichever thread ends it.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}
Pool& waiting_pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

void run_in(Pool& pool, Job& job) {
  pool.run(job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace

int resolve_threads(int threads) {
  if (threads < 0) {
    throw Error(ErrorCode::invalid_argument, "threads = " + std::to_string(threads) +
                                                 ": must be 0 (every hardware thread) or more");
  }
  if (threads > 0) return threads;
  // Asked once: the answer is read from a file.
  static const int hardware_threads =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return hardware_threads;
}

void parallel_for(std::int64_t count, std::int64_t grain, int threads, const Body& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t grains = (count - 1) / grain + 1;
  const std::int64_t used = std::min<std::int64_t>(resolve_threads(threads), grains);
  if (used == 1 || inside_body) {
    body(0, count);
    return;
  }
  const std::int64_t range = std::max<std::int64_t>(1, grains / (used * ranges_per_thread)) * grain;
  Job job(body, count, range, static_cast<int>(used) - 1);
  run_in(pool(), job);
}

void parallel_for_waiting(std::int64_t count, int threads, const Body& body) {
  if (count <= 0) return;
  const std::int64_t used = std::min<std::int64_t>(threads, count);
  if (used <= 1 || inside_body) {
    body(0, count);
    return;
  }
  Job job(body, count, 1, static_cast<int>(used) - 1);
  run_in(waiting_pool(), job);
}

}  // namespace slimgemm
