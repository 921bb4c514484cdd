// The shared pool of worker threads: every item of every call is done once, by no more threads than
// were asked for, whoever else is calling; and plans that many threads run at once. Meant to be run
// under a thread sanitizer too.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "ops/pool/plan.h"
#include "tests/check.h"
#include "tests/elements.h"

// A child of a threaded process may start threads of its own here: the pool begins anew in it.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace backops {
namespace {

using namespace test;

constexpr int kMostWorkers = 8;

// A job whose items are taken from a common counter. What the items write is not atomic: if two
// threads did one item, or the caller read it too early, a sanitizer would see it.
struct Job {
  Job(std::int64_t item_count, int thread_count)
      : threads(thread_count), done(static_cast<std::size_t>(item_count), 0) {}

  const int threads;
  std::vector<std::int64_t> done;              // times each item was done
  std::int64_t per_worker[kMostWorkers] = {};  // a worker's own, as its scratch memory would be
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> in_use[kMostWorkers] = {};
  std::atomic<bool> broken{false};  // a worker's number was taken twice or out of range
};

void work_on_job(void* context, int worker) {
  Job& job = *static_cast<Job*>(context);
  if (worker < 0 || worker >= job.threads || job.in_use[worker].exchange(true)) {
    job.broken = true;
    return;
  }
  const auto count = static_cast<std::int64_t>(job.done.size());
  for (;;) {
    const std::int64_t item = job.next.fetch_add(1, std::memory_order_relaxed);
    if (item >= count) return;
    ++job.done[static_cast<std::size_t>(item)];
    ++job.per_worker[worker];
  }
}

bool is_done_exactly_once(const Job& job) {
  std::int64_t counted = 0;
  for (const std::int64_t times : job.per_worker) counted += times;
  const bool once =
      std::all_of(job.done.begin(), job.done.end(), [](std::int64_t times) { return times == 1; });
  return once && !job.broken && counted == static_cast<std::int64_t>(job.done.size());
}

bool run_job(std::int64_t items, int threads) {
  Job job(items, threads);
  run_parallel(threads, work_on_job, &job);
  return is_done_exactly_once(job);
}

void test_every_item_is_done_once() {
  for (int threads = 1; threads <= kMostWorkers; ++threads) {
    for (const std::int64_t items : {0, 1, 2, 7, 1000}) {
      const Situation here("threads=%d items=%d", threads, static_cast<int>(items));
      bool right = true;
      for (int repeat = 0; repeat < 100; ++repeat) right &= run_job(items, threads);
      CHECK(right);
    }
  }
}

// Like work_on_job, but the caller waits until another thread has taken an item, which on a busy
// machine may be long after its own first one, and then finds nothing left while the others are
// still at work.
void work_slowly(void* context, int worker) {
  Job& job = *static_cast<Job*>(context);
  const auto count = static_cast<std::int64_t>(job.done.size());
  std::int64_t own = 0;
  for (;;) {
    const std::int64_t item = job.next.fetch_add(1, std::memory_order_relaxed);
    if (item >= count) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(worker == 0 ? 2 : 5));
    ++job.done[static_cast<std::size_t>(item)];
    ++job.per_worker[worker];
    ++own;
    for (int wait = 0; worker == 0 && job.next == own && wait < 5000; ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// Whether all was done, and not by the caller alone.
bool share_slow_job() {
  Job job(8, 4);
  run_parallel(job.threads, work_slowly, &job);
  return is_done_exactly_once(job) && job.per_worker[0] < 8;
}

void test_call_waits_for_slow_workers() {
  for (int i = 0; i < 10; ++i) CHECK(share_slow_job());
}

// Changing thread counts: a worker late for one call must not turn up in the next with the wrong
// number.
void test_calls_in_quick_succession() {
  Random random(1);
  bool right = true;
  for (int i = 0; i < 5000; ++i) {
    right &= run_job(random.integer(0, 20), static_cast<int>(random.integer(1, kMostWorkers)));
  }
  CHECK(right);
}

void test_worker_zero_is_the_caller() {
  const std::thread::id caller = std::this_thread::get_id();
  struct Context {
    std::thread::id caller;
    std::atomic<bool> wrong;
  } context{caller, {false}};
  for (int i = 0; i < 200; ++i) {
    run_parallel(
        4,
        [](void* pointer, int worker) {
          Context& c = *static_cast<Context*>(pointer);
          if ((worker == 0) != (std::this_thread::get_id() == c.caller)) c.wrong = true;
        },
        &context);
  }
  CHECK(!context.wrong);
}

void test_many_callers_at_once() {
  for (const int callers : {2, 5, 12}) {
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int caller = 0; caller < callers; ++caller) {
      threads.emplace_back([caller, &failures] {
        Random random(static_cast<std::uint64_t>(caller));
        for (int i = 0; i < 300; ++i) {
          const int wanted = static_cast<int>(random.integer(1, kMostWorkers));
          if (!run_job(random.integer(0, 300), wanted)) ++failures;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const Situation here("%d callers", callers);
    CHECK_EQUAL(failures.load(), 0);
  }
}

// Callers that end take nothing with them that the pool still needs.
void test_callers_come_and_go() {
  bool right = true;
  for (int i = 0; i < 50; ++i) {
    std::thread([&right, i] { right &= run_job(100, 2 + i % 4); }).join();
  }
  CHECK(right);
}

// ---- threads of somebody else -------------------------------------------------------------------

thread_local int t_number = 0;
std::atomic<unsigned> g_flags{0};  // of all calls; checks are not for several threads at once

// A team as an OpenMP runtime would be, that starts one thread fewer than it is asked for.
void run_on_new_threads(void (*function)(void*), void* data, unsigned threads, unsigned flags) {
  g_flags |= flags;
  std::vector<std::thread> others;
  for (unsigned number = 1; number + 1 < threads; ++number) {
    others.emplace_back([=] {
      t_number = static_cast<int>(number);
      function(data);
    });
  }
  function(data);
  for (std::thread& other : others) other.join();
}

std::atomic<int> g_team_runs{0};
std::atomic<unsigned> g_team_threads{0};  // what the last run was asked for

constexpr Team kNewThreads{run_on_new_threads, [] { return t_number; }};
constexpr Team kCountedThreads{
    [](void (*function)(void*), void* data, unsigned threads, unsigned flags) {
      ++g_team_runs;
      g_team_threads = threads;
      run_on_new_threads(function, data, threads, flags);
    },
    [] { return t_number; }};

void test_work_on_a_team() {
  for (const int threads : {1, 2, 5, kMostWorkers}) {
    const Situation here("threads=%d", threads);
    const OnTeam on_team(&kNewThreads);
    bool right = true;
    for (int repeat = 0; repeat < 20; ++repeat) right &= run_job(200, threads);
    CHECK(right);
  }
}

// A region for fewer threads would end the others; but no more of them work than were asked for.
void test_regions_of_a_team_have_all_of_its_threads() {
  Team team = kCountedThreads;
  team.size = 6;
  const OnTeam on_team(&team);
  for (const int threads : {2, 3, kMostWorkers}) {
    const Situation here("threads=%d", threads);
    CHECK(run_job(200, threads));
    CHECK_EQUAL(g_team_threads.load(), static_cast<unsigned>(std::max(threads, 6)));
  }
}

// Only this thread's calls, only as long as it is asked for, and not those that need no other
// thread.
void test_team_is_that_of_the_caller() {
  g_team_runs = 0;
  {
    const OnTeam on_team(&kCountedThreads);
    CHECK(run_job(100, 3));
    CHECK_EQUAL(g_team_runs.load(), 1);
    CHECK(run_job(100, 1));
    std::thread([] { CHECK(run_job(100, 3)); }).join();
    CHECK_EQUAL(g_team_runs.load(), 1);
    {
      const OnTeam inner(&kNewThreads);
      CHECK(run_job(100, 3));
    }
    const OnTeam nothing(nullptr);
    CHECK(run_job(100, 3));
    CHECK_EQUAL(g_team_runs.load(), 2);
  }
  CHECK(run_job(100, 3));
  CHECK_EQUAL(g_team_runs.load(), 2);
}

void test_many_callers_with_teams() {
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([caller, &failures] {
      const OnTeam on_team(caller % 2 == 0 ? &kNewThreads : nullptr);
      for (int i = 0; i < 30; ++i) {
        if (!run_job(100, 1 + (caller + i) % 4)) ++failures;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK_EQUAL(failures.load(), 0);
  CHECK_EQUAL(g_flags.load(), 0u);
}

// ---- plans -------------------------------------------------------------------------------------

PoolProblem several_tiles() {
  PoolProblem p;
  const std::int64_t shape[] = {2, 9, 90, 70};
  std::copy(shape, shape + 4, p.input_shape);
  for (int axis = 0; axis < 2; ++axis) {
    p.kernel_size[axis] = 3;
    p.stride[axis] = 2;
    p.padding[axis] = 1;
  }
  return p;
}

TensorView dense_view(std::vector<float>& values, const std::int64_t* shape) {
  std::int64_t count = 1;
  TensorView view{nullptr, DType::float32, 4, {}, {}};
  for (int i = 3; i >= 0; --i) {
    view.shape[i] = shape[i];
    view.stride_bytes[i] = count * static_cast<std::int64_t>(sizeof(float));
    count *= shape[i];
  }
  values.resize(static_cast<std::size_t>(count));
  view.data = reinterpret_cast<char*>(values.data());
  return view;
}

std::vector<float> run_plan(const PoolPlan& plan, const TensorView& grad_output, int threads) {
  std::vector<float> result;
  const TensorView grad_input = dense_view(result, plan.problem().input_shape);
  std::vector<char> workspace(plan.workspace_bytes(threads));
  plan.run(grad_output, grad_input, workspace.data(), threads);
  return result;
}

// Bitwise the same for every number of threads, with any number of callers sharing one plan.
void test_one_plan_run_by_many() {
  const PoolPlan plan(several_tiles());
  std::vector<float> gradients;
  const TensorView grad_output = dense_view(gradients, plan.output_shape());
  Random random(3);
  for (float& value : gradients) value = static_cast<float>(random.real());
  const std::vector<float> expected = run_plan(plan, grad_output, 1);
  for (int threads = 2; threads <= kMostWorkers; ++threads) {
    const Situation here("threads=%d", threads);
    CHECK(run_plan(plan, grad_output, threads) == expected);
  }
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 20; ++i) {
        if (run_plan(plan, grad_output, 1 + (caller + i) % 5) != expected) ++failures;
      }
    });
  }
  for (std::thread& thread : callers) thread.join();
  CHECK_EQUAL(failures.load(), 0);
}

// ---- fork --------------------------------------------------------------------------------------

// The address sanitizer's allocator may be locked, at the fork, by a thread that the child does not
// have; the child then waits for it for ever. The thread sanitizer runs the test. QEMU's emulation
// of user programs ends with an assertion of its own in the child of a program with threads.
#if defined(__SANITIZE_ADDRESS__) || defined(BACKOPS_EMULATED)
constexpr bool kMayFork = false;
#else
constexpr bool kMayFork = true;
#endif

// Runs `body` in a child and says whether it returned true in time.
template <class Body>
bool holds_in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that waits for its parent's threads would wait for ever
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool run_jobs() {
  bool right = share_slow_job();
  for (int i = 0; i < 50; ++i) right &= run_job(200, 1 + i % kMostWorkers);
  return right;
}

void test_forked_child_has_threads_of_its_own() {
  CHECK(run_jobs());
  CHECK(holds_in_child(run_jobs));
  CHECK(holds_in_child([] { return run_jobs() && holds_in_child(run_jobs); }));
  CHECK(run_jobs());
}

// ---- settings ----------------------------------------------------------------------------------

std::string default_threads_for(const char* setting) {
  setenv("BACKOPS_NUM_THREADS", setting, 1);
  std::string result;
  try {
    result = std::to_string(default_thread_count());
  } catch (const Error& error) {
    result = error.what();
  }
  unsetenv("BACKOPS_NUM_THREADS");
  return result;
}

void test_thread_count_from_the_environment() {
  CHECK_EQUAL(default_threads_for("3"), "3");
  CHECK_EQUAL(default_threads_for("1024"), "1024");
  for (const char* text : {"0", "-1", "1025", "two", "4x", "99999999999999999999", " "}) {
    CHECK_EQUAL(default_threads_for(text), "BACKOPS_NUM_THREADS is '" + std::string(text) +
                                               "', expected an integer from 1 to 1024");
  }
  CHECK_EQUAL(default_threads_for(""), std::to_string(default_thread_count()));
  CHECK(default_thread_count() >= 1 && default_thread_count() <= kMaxThreads);
}

}  // namespace
}  // namespace backops

int main() {
  using namespace backops;
  test_thread_count_from_the_environment();
  test_every_item_is_done_once();
  test_call_waits_for_slow_workers();
  test_calls_in_quick_succession();
  test_worker_zero_is_the_caller();
  test_many_callers_at_once();
  test_callers_come_and_go();
  test_work_on_a_team();
  test_regions_of_a_team_have_all_of_its_threads();
  test_team_is_that_of_the_caller();
  test_many_callers_with_teams();
  test_one_plan_run_by_many();
  if (kMayFork) {
    test_forked_child_has_threads_of_its_own();
  } else {
    std::printf("skipped: children of a fork, which this build cannot have\n");
  }
  return test::finish();
}
