#include "acl/executor.h"

#include <algorithm>
#include <utility>

#include "acl/handles.h"
#include "acl/memory.h"
#include "acl/objects.h"

namespace backops::acl {
namespace {

using Executors = Handles<aclOpExecutor>;

[[noreturn]] void fail_not_alive() {
  throw Failure(ACLNN_ERR_PARAM_INVALID, "executor",
                "no executor that is alive, but launched before or destroyed",
                "expected a new one, or aclSetAclOpExecutorRepeatable before the first launch");
}

std::shared_ptr<aclOpExecutor> find_executor(const aclOpExecutor* executor) {
  require_aclnn(executor, "executor");
  if (auto found = Executors::all().find(executor)) return found;
  fail_not_alive();
}

// "grad_output" is gradOutput.
std::string camel_case(const std::string& name) {
  std::string result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool starts_word = i > 0 && name[i - 1] == '_';
    if (name[i] == '_') continue;
    result += starts_word && name[i] >= 'a' ? static_cast<char>(name[i] - 'a' + 'A') : name[i];
  }
  return result;
}

// One launch: everything it needs, whatever happens to the executor and to device memory.
class Launch {
 public:
  Launch(const aclOpExecutor& executor, void* workspace, std::uint64_t workspace_size)
      : work_(executor.work), workspace_(workspace) {
    for (std::size_t i = 0; i < executor.tensors.size(); ++i) place(i, executor.tensors[i]);
    check_apart(executor.tensors);
    check_workspace(executor.tensors, workspace_size);
  }

  void operator()() const { work_->run(views_, workspace_); }

 private:
  void place(std::size_t i, const BoundTensor& tensor) {
    views_[i] = tensor.operand.at(tensor.data);
    if (tensor.operand.is_empty()) return;
    if (tensor.data == nullptr) {
      throw Failure(ACLNN_ERR_RUNTIME_ERROR, tensor.name, "without data",
                    "expected device memory (from aclrtMalloc)");
    }
    held_[i] = find_device_memory(ACLNN_ERR_RUNTIME_ERROR, tensor.name,
                                  reinterpret_cast<std::uintptr_t>(tensor.data),
                                  tensor.operand.range(tensor.data));
  }

  void check_apart(const std::vector<BoundTensor>& tensors) const {
    RunTensor all[kMostRunTensors];
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      all[i] = {tensors[i].name, &views_[i], tensors[i].is_output};
    }
    const SharedMemory shared = find_shared_memory(all, tensors.size());
    if (shared.written == nullptr) return;
    throw Failure(ACLNN_ERR_RUNTIME_ERROR, shared.written->name,
                  "at bytes " + text_of(range_of(*shared.written->view)),
                  std::string("expected memory apart from ") + shared.other->name + ", at bytes " +
                      text_of(range_of(*shared.other->view)));
  }

  void check_workspace(const std::vector<BoundTensor>& tensors, std::uint64_t workspace_size) {
    const std::size_t needed = work_->workspace_bytes();
    if (workspace_size < needed) {
      throw Failure(
          ACLNN_ERR_RUNTIME_ERROR, "workspaceSize", std::to_string(workspace_size),
          "expected at least the " + std::to_string(needed) + " bytes that the first stage told");
    }
    if (needed == 0) return;
    if (workspace_ == nullptr) {
      throw Failure(ACLNN_ERR_RUNTIME_ERROR, "workspace", "NULL",
                    "expected " + std::to_string(needed) + " bytes of device memory");
    }
    const ByteRange range = range_of(workspace_, needed);
    held_[kMostRunTensors] =
        find_device_memory(ACLNN_ERR_RUNTIME_ERROR, "workspace", range.begin, range);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!reaches_into(views_[i], workspace_, needed)) continue;
      throw Failure(ACLNN_ERR_RUNTIME_ERROR, "workspace", "at bytes " + text_of(range),
                    std::string("expected memory apart from ") + tensors[i].name + ", at bytes " +
                        text_of(range_of(views_[i])));
    }
  }

  std::shared_ptr<const Work> work_;
  void* workspace_;
  TensorView views_[kMostRunTensors];
  std::shared_ptr<const Allocation> held_[kMostRunTensors + 1];  // the last one for the workspace
};

void launch(const OperatorNames& names, void* workspace, std::uint64_t workspace_size,
            aclOpExecutor* handle, aclrtStream stream) {
  const std::shared_ptr<aclOpExecutor> executor = find_executor(handle);
  if (&executor->names != &names) {
    throw Failure(ACLNN_ERR_PARAM_INVALID, "executor",
                  std::string("one of ") + executor->names.second_stage,
                  std::string("expected one from ") + names.first_stage);
  }
  const std::lock_guard<std::mutex> lock(executor->mutex);
  if (executor->is_spent) fail_not_alive();  // another thread was faster
  queue_of(stream)->add(Launch(*executor, workspace, workspace_size));
  if (executor->is_repeatable) return;
  executor->is_spent = true;
  Executors::all().remove(handle);
}

enum class Among { inputs, outputs, all };

void rebind(aclOpExecutor* handle, Among among, std::size_t index, const aclTensor* tensor,
            const void* address) {
  const std::shared_ptr<aclOpExecutor> executor = find_executor(handle);
  require_aclnn(tensor, "tensor");
  require_aclnn(address, "addr");
  const auto described = Handles<aclTensor>::all().find(tensor);
  if (described == nullptr) {
    throw Failure(ACLNN_ERR_PARAM_INVALID, "tensor", "no tensor that is alive",
                  "expected one from aclCreateTensor");
  }
  const std::lock_guard<std::mutex> lock(executor->mutex);
  if (!executor->is_repeatable) {
    throw Failure(ACLNN_ERR_PARAM_INVALID, "executor", "for one launch",
                  "expected one that aclSetAclOpExecutorRepeatable was called for");
  }
  std::vector<BoundTensor>& tensors = executor->tensors;
  const auto first_output = std::find_if(tensors.begin(), tensors.end(),
                                         [](const BoundTensor& each) { return each.is_output; });
  const auto begin = among == Among::outputs ? first_output : tensors.begin();
  const auto end = among == Among::inputs ? first_output : tensors.end();
  if (index >= static_cast<std::size_t>(end - begin)) {
    throw Failure(ACLNN_ERR_PARAM_INVALID, "index", std::to_string(index),
                  begin == end ? "but the executor has no such tensor"
                               : "expected 0 to " + std::to_string(end - begin - 1));
  }
  BoundTensor& bound = begin[static_cast<std::ptrdiff_t>(index)];
  const TensorView& view = bound.operand.view();
  if (!std::equal(described->view_shape.begin(), described->view_shape.end(), view.shape,
                  view.shape + view.ndim)) {
    throw Failure(
        ACLNN_ERR_PARAM_INVALID, "tensor",
        shape_text(described->view_shape.data(), static_cast<int>(described->view_shape.size())),
        std::string("expected the shape of ") + bound.name + ", " +
            shape_text(view.shape, view.ndim));
  }
  bound.data = address;
}

}  // namespace

std::string message_of(const Error& error, const OperatorNames& names) {
  return error.message([&names](const std::string& name) -> std::string {
    for (const Spelling& each : names.spellings) {
      if (each.core != nullptr && name == each.core) return each.document;
    }
    return camel_case(name);
  });
}

Failure with_aclnn_code(const Failure& failure, int code) {
  const bool of_runtime = failure.code() < ACLNN_ERR_PARAM_NULLPTR;
  return of_runtime ? Failure(code, failure.what()) : failure;
}

void finish_first_stage(const OperatorNames& names, Planned planned, std::uint64_t* workspaceSize,
                        aclOpExecutor** executor) {
  const std::size_t bytes = planned.work->workspace_bytes();
  *executor = Executors::all().add(std::make_shared<aclOpExecutor>(names, std::move(planned)));
  *workspaceSize = bytes;
}

// What the runtime refuses, such as a stream, is an error of the runtime here.
aclnnStatus second_stage(const OperatorNames& names, void* workspace, std::uint64_t workspaceSize,
                         aclOpExecutor* executor, aclrtStream stream) noexcept {
  return guarded_aclnn(names.second_stage, [&] {
    try {
      launch(names, workspace, workspaceSize, executor, stream);
    } catch (const Failure& failure) {
      throw with_aclnn_code(failure, ACLNN_ERR_RUNTIME_ERROR);
    }
  });
}

}  // namespace backops::acl

using namespace backops::acl;

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  return guarded_aclnn("aclSetAclOpExecutorRepeatable", [&] {
    const std::shared_ptr<aclOpExecutor> found = find_executor(executor);
    const std::lock_guard<std::mutex> lock(found->mutex);
    found->is_repeatable = true;
  });
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return guarded_aclnn("aclDestroyAclOpExecutor", [&] {
    find_executor(executor);
    Executors::all().remove(executor);
  });
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                  void* addr) {
  return guarded_aclnn("aclSetInputTensorAddr",
                       [&] { rebind(executor, Among::inputs, index, tensor, addr); });
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                   void* addr) {
  return guarded_aclnn("aclSetOutputTensorAddr",
                       [&] { rebind(executor, Among::outputs, index, tensor, addr); });
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                             void* addr) {
  return guarded_aclnn("aclSetTensorAddr",
                       [&] { rebind(executor, Among::all, index, tensor, addr); });
}
