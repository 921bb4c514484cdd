// What the first stage of an operator makes and the second launches: an operator with its plan and
// the tensors it is bound to.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "acl/context.h"
#include "acl/failure.h"
#include "aclnn/aclnn_base.h"
#include "base/error.h"
#include "base/operand.h"
#include "runtime/wait_at_exit.h"

namespace backops::acl {

// Immutable; any number of launches may run one at once.
class Work {
 public:
  virtual ~Work() = default;
  virtual std::size_t workspace_bytes() const = 0;
  // The tensors in the order of the executor's.
  virtual void run(const TensorView* tensors, void* workspace) const noexcept = 0;
};

// To be called when a plan of this kind was made: what the plan's engine cleans up when the program
// ends is then cleaned up after everything queued is done.
template <class Kind>
void finish_work_before_exit() {
  static const WaitAtExit wait_at_exit([] { synchronize_all(); });
}

struct BoundTensor {
  const char* name;  // as the document calls it
  Operand operand;
  const void* data;
  bool is_output;
};

// What a document calls a tensor or parameter of the core.
struct Spelling {
  const char* core;
  const char* document;
};

// What an operator is called, and what it calls what it does not call as the core does.
struct OperatorNames {
  const char* first_stage;
  const char* second_stage;
  Spelling spellings[4];  // as many as there are, then nulls
};

// An error of the core in the document's words.
std::string message_of(const Error& error, const OperatorNames& names);

// The same with `code`, if its own is one of the runtime.
Failure with_aclnn_code(const Failure& failure, int code);

struct Planned {
  std::vector<BoundTensor> tensors;  // inputs first
  std::shared_ptr<const Work> work;
};

void finish_first_stage(const OperatorNames& names, Planned planned, std::uint64_t* workspaceSize,
                        aclOpExecutor** executor);

// `plan` returns what is Planned, or throws Error or Failure. Nothing is written then.
template <class Plan>
aclnnStatus first_stage(const OperatorNames& names, std::uint64_t* workspaceSize,
                        aclOpExecutor** executor, const Plan& plan) noexcept {
  return guarded_aclnn(names.first_stage, [&] {
    try {
      require_aclnn(workspaceSize, "workspaceSize");
      require_aclnn(executor, "executor");
      finish_first_stage(names, plan(), workspaceSize, executor);
    } catch (const Error& error) {
      throw Failure(ACLNN_ERR_PARAM_INVALID, message_of(error, names));
    } catch (const Failure& failure) {
      throw with_aclnn_code(failure, ACLNN_ERR_PARAM_INVALID);
    }
  });
}

aclnnStatus second_stage(const OperatorNames& names, void* workspace, std::uint64_t workspaceSize,
                         aclOpExecutor* executor, aclrtStream stream) noexcept;

}  // namespace backops::acl

struct aclOpExecutor {
  aclOpExecutor(const backops::acl::OperatorNames& operator_names, backops::acl::Planned planned)
      : names(operator_names), work(std::move(planned.work)), tensors(std::move(planned.tensors)) {}

  const backops::acl::OperatorNames& names;
  const std::shared_ptr<const backops::acl::Work> work;

  std::mutex mutex;  // guards what follows
  std::vector<backops::acl::BoundTensor> tensors;
  bool is_repeatable = false;
  bool is_spent = false;
};
