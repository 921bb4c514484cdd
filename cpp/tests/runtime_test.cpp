// Queues run in order, beside the caller; events mark places in them.
// Meant to be run under a thread sanitizer too: what operations write is not atomic.
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/event.h"
#include "runtime/memory.h"
#include "runtime/queue.h"
#include "tests/check.h"

namespace backops {
namespace {

// An operation that keeps its queue busy until it is let go.
class Gate {
 public:
  Queue::Operation operation() const {
    return [open = open_.get_future().share()] { open.wait(); };
  }
  void open() { open_.set_value(); }

 private:
  mutable std::promise<void> open_;
};

void test_operations_run_in_order() {
  Queue queue;
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    queue.add([&order, i] { order.push_back(i); });
  }
  queue.synchronize();
  bool in_order = order.size() == 1000;
  for (std::size_t i = 0; i < order.size(); ++i) in_order &= order[i] == static_cast<int>(i);
  CHECK(in_order);
}

void test_operations_run_beside_the_caller() {
  Queue queue;
  Gate gate;
  std::thread::id worker;
  queue.add(gate.operation());
  queue.add([&worker] { worker = std::this_thread::get_id(); });
  gate.open();  // would never be reached otherwise
  queue.synchronize();
  CHECK(worker != std::this_thread::get_id());
}

void test_synchronize_does_not_wait_for_what_is_added_meanwhile() {
  Queue queue;
  Gate first, second;
  queue.add(first.operation());
  std::thread waits([&] { queue.synchronize(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  queue.add(second.operation());
  first.open();
  waits.join();  // would hang otherwise
  second.open();
  queue.synchronize();
}

void test_destruction_runs_what_is_queued() {
  int ran = 0;
  {
    Queue queue;
    for (int i = 0; i < 100; ++i) queue.add([&ran] { ++ran; });
  }
  CHECK_EQUAL(ran, 100);
}

void test_operations_let_go_of_what_they_hold() {
  Queue queue;
  auto held = std::make_shared<int>(0);
  queue.add([held] {});
  queue.synchronize();
  CHECK_EQUAL(held.use_count(), 1);
}

void test_group_waits_for_all_its_queues() {
  QueueGroup group;
  const auto first = group.create(), second = group.create();
  int ran = 0, other = 0;
  first->add([&ran] { ++ran; });
  second->add([&other] { ++other; });
  {
    group.create()->add([] {});
  }  // gone already
  group.synchronize();
  CHECK_EQUAL(ran + other, 2);
}

void test_event_is_done_when_its_queue_gets_there() {
  Queue queue;
  Gate gate;
  Event event(true);
  CHECK(event.is_done());  // never recorded
  queue.add(gate.operation());
  event.record(&queue);
  CHECK(!event.is_done());
  gate.open();
  event.synchronize();
  CHECK(event.is_done());
}

void test_event_outlives_its_queue() {
  Event event(true);
  {
    Queue queue;
    event.record(&queue);
  }
  event.synchronize();
  CHECK(event.is_done());
}

void test_queue_waits_for_an_event_of_another() {
  Queue first, second;
  Gate gate;
  Event event(false);
  int value = 0, seen = 0;
  first.add(gate.operation());
  first.add([&value] { value = 5; });
  event.record(&first);
  event.delay(second);
  second.add([&] { seen = value; });
  gate.open();
  second.synchronize();
  CHECK_EQUAL(seen, 5);
}

void test_recording_anew_does_not_delay_who_waits_already() {
  Queue first, second;
  Gate gate;
  Event event(false);
  event.record(&first);
  event.delay(second);
  first.add(gate.operation());
  event.record(&first);
  second.synchronize();
  CHECK(!event.is_done());
  gate.open();
}

void test_elapsed_time() {
  Queue queue;
  Event start(true), end(true), untimed(false), unrecorded(true);
  Gate gate;
  float milliseconds = -1;
  start.record(&queue);
  queue.add([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  queue.add(gate.operation());
  end.record(&queue);
  CHECK(!Event::elapsed(start, end, &milliseconds));
  gate.open();
  end.synchronize();
  untimed.record(nullptr);
  CHECK(!Event::elapsed(start, untimed, &milliseconds));
  CHECK(!Event::elapsed(unrecorded, end, &milliseconds));
  CHECK_EQUAL(milliseconds, -1.0f);
  CHECK(Event::elapsed(start, end, &milliseconds));
  CHECK(milliseconds >= 20 && milliseconds < 60000);
}

// Many threads feed many queues that wait for each other's events, which are recorded anew all the
// time; each queue is read and written by its own operations only.
void test_stress() {
  constexpr int kThreads = 8, kQueues = 4, kRounds = 200;
  QueueGroup group;
  std::vector<std::shared_ptr<Queue>> queues;
  std::vector<std::unique_ptr<Event>> events;
  for (int i = 0; i < kQueues; ++i) {
    queues.push_back(group.create());
    events.push_back(std::make_unique<Event>(i % 2 == 0));
  }
  std::vector<std::int64_t> counts(kQueues, 0);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < kRounds; ++round) {
        const auto at = static_cast<std::size_t>((thread + round) % kQueues);
        const std::size_t next = (at + 1) % kQueues;
        queues[at]->add([&count = counts[at]] { ++count; });
        events[at]->record(queues[at].get());
        events[next]->delay(*queues[at]);
        if (round % 16 == 0) queues[at]->synchronize();
        if (round % 32 == 0) group.synchronize();
        float milliseconds = 0;
        Event::elapsed(*events[at], *events[next], &milliseconds);
        group.create()->add([] {});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  group.synchronize();
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  CHECK_EQUAL(total, kThreads * kRounds);
}

void test_aligned_memory() {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{100}}) {
    void* const memory = allocate_aligned(bytes);
    CHECK(memory != nullptr);
    CHECK_EQUAL(reinterpret_cast<std::uintptr_t>(memory) % 64, std::uintptr_t{0});
    free_aligned(memory);
  }
  CHECK(allocate_aligned(static_cast<std::size_t>(-1)) == nullptr);
}

}  // namespace
}  // namespace backops

int main() {
  using namespace backops;
  test_operations_run_in_order();
  test_operations_run_beside_the_caller();
  test_synchronize_does_not_wait_for_what_is_added_meanwhile();
  test_destruction_runs_what_is_queued();
  test_operations_let_go_of_what_they_hold();
  test_group_waits_for_all_its_queues();
  test_event_is_done_when_its_queue_gets_there();
  test_event_outlives_its_queue();
  test_queue_waits_for_an_event_of_another();
  test_recording_anew_does_not_delay_who_waits_already();
  test_elapsed_time();
  test_stress();
  test_aligned_memory();
  return test::finish();
}
