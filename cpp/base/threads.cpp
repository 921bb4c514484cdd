#include "base/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.h"

namespace backops {
namespace {

void pause() {
#ifdef BACKOPS_X86
  __builtin_ia32_pause();
#endif
}

// Waiting awake for this many pauses spares back-to-back calls the wake-up; longer would take the
// core from the caller's own threads.
constexpr int kSpins = 400;

class Pool {
 public:
  static Pool& shared();

  void run(int threads, Work work, void* context) noexcept {
    std::unique_lock<std::mutex> one_job(job_, std::try_to_lock);
    if (threads <= 1 || !one_job) return work(context, 0);
    {
      const std::lock_guard<std::mutex> lock(state_);
      hire(threads - 1);
      work_ = work;
      context_ = context;
      open_ = threads - 1;
      job_number_.store(job_number_ + 1, std::memory_order_relaxed);
    }
    wake_.notify_all();
    work(context, 0);
    finish();
  }

 private:
  void hire(int wanted) {
    while (hired_ < wanted) {
      try {
        std::thread([this, worker = hired_ + 1] { serve(worker); }).detach();
      } catch (...) {
        return;  // fewer workers: the caller does the rest
      }
      ++hired_;
    }
  }

  // Workers that have not taken a place by now are not waited for.
  void finish() {
    std::unique_lock<std::mutex> lock(state_);
    open_ = 0;
    for (int spin = 0; active_ > 0 && spin < kSpins; ++spin) {
      lock.unlock();
      for (int i = 0; i < 8; ++i) pause();
      lock.lock();
    }
    done_.wait(lock, [this] { return active_ == 0; });
  }

  // A thread has the same number in every job: what it worked on last time is in its caches.
  void serve(const int worker) {
    std::uint64_t last_job = 0;
    std::unique_lock<std::mutex> lock(state_);
    for (;;) {
      const auto is_wanted = [&] { return worker <= open_ && job_number_ != last_job; };
      if (!is_wanted()) {
        lock.unlock();
        for (int i = 0; i < kSpins && job_number_.load(std::memory_order_relaxed) == last_job;
             ++i) {
          pause();
        }
        lock.lock();
      }
      wake_.wait(lock, is_wanted);
      last_job = job_number_;
      ++active_;
      const Work work = work_;
      void* const context = context_;
      lock.unlock();
      work(context, worker);
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  std::mutex job_;    // held by the caller whose job runs
  std::mutex state_;  // guards everything below
  std::condition_variable wake_, done_;
  Work work_ = nullptr;
  void* context_ = nullptr;
  int hired_ = 0;
  int open_ = 0;                              // workers 1 to this may still enter the current job
  int active_ = 0;                            // workers inside the current job
  std::atomic<std::uint64_t> job_number_{0};  // written with the lock, may be read without
};

std::atomic<Pool*> g_pool{nullptr};

Pool& Pool::shared() {
  Pool* pool = g_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return *pool;
  static std::mutex creation;
  // A forked child has none of its parent's threads, and locks in an unknown state: it starts over.
  static const int registered = pthread_atfork([] { creation.lock(); }, [] { creation.unlock(); },
                                               [] {
                                                 creation.unlock();
                                                 g_pool.store(nullptr);
                                               });
  static_cast<void>(registered);
  const std::lock_guard<std::mutex> lock(creation);
  pool = g_pool.load();
  if (pool == nullptr) {
    // Never destroyed: its threads wait in it until the process is gone.
    pool = new Pool;
    g_pool.store(pool, std::memory_order_release);
  }
  return *pool;
}

}  // namespace

int default_thread_count() {
  const char* text = std::getenv("BACKOPS_NUM_THREADS");
  if (text != nullptr && *text != '\0') {
    char* end = nullptr;
    errno = 0;
    const long value = std::strtol(text, &end, 10);
    if (*end != '\0' || errno != 0 || value < 1 || value > kMaxThreads) {
      throw Error(ErrorKind::param, "BACKOPS_NUM_THREADS", "'" + std::string(text) + "'",
                  "expected an integer from 1 to " + std::to_string(kMaxThreads));
    }
    return static_cast<int>(value);
  }
  int count = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) count = CPU_COUNT(&cpus);
#endif
  return count < 1 ? 1 : count > kMaxThreads ? kMaxThreads : count;
}

namespace {

thread_local const Team* t_team = nullptr;

void run_on(const Team& team, int threads, Work work, void* context) {
  struct Job {
    Work work;
    void* context;
    int (*thread_number)();
    int threads;
  } job{work, context, team.thread_number, threads};
  const auto take_part = [](void* data) {
    const Job& own = *static_cast<Job*>(data);
    const int worker = own.thread_number();
    if (worker < own.threads) own.work(own.context, worker);
  };
  team.run(take_part, &job, static_cast<unsigned>(std::max(threads, team.size)), 0);
}

}  // namespace

OnTeam::OnTeam(const Team* team) : before_(t_team) {
  if (team != nullptr) t_team = team;
}
OnTeam::~OnTeam() { t_team = before_; }

void run_parallel(int threads, Work work, void* context) noexcept {
  if (threads <= 1) return work(context, 0);
  if (t_team != nullptr) return run_on(*t_team, threads, work, context);
  Pool::shared().run(threads, work, context);
}

}  // namespace backops
