// The life of an operator, the same for all: create, ask for the workspace, compute, destroy.
//
// An Operator is what a descriptor stands for. It is immutable, and says:
//   kKind                what it is: descriptors of all operators have one C type
//   kTooSmallWorkspace   the status for that
//   Data                 the pointers of one run
//   workspace_bytes()
//   has_all(data)                     whether there is a pointer for every tensor
//   check_memory(data, workspace, bytes)   throws Error where a run may not have this memory
//   run(data, workspace)              throws nothing, cannot fail
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "infiniop/operator_descriptor.h"
#include "infiniop/status.h"
#include "infiniop/stream.h"
#include "infinirt.h"
#include "runtime/wait_at_exit.h"

namespace backops::infini {

// Clients read these two ints.
static_assert(offsetof(InfiniopDescriptor, device) == 0, "read by clients");
static_assert(offsetof(InfiniopDescriptor, device_id) == sizeof(int), "read by clients");

enum class OperatorKind : std::uint8_t {
  adaptive_average_pool_1d,
  adaptive_average_pool_3d,
  average_pool,
  average_pool_1d,
  average_pool_3d,
  average_pool_backward,
  conv,
  conv_backward
};

struct KnownDescriptor : InfiniopDescriptor {
  KnownDescriptor(const InfiniopHandle& handle, OperatorKind operator_kind)
      : InfiniopDescriptor{handle.device, handle.device_id}, kind(operator_kind) {}

  const OperatorKind kind;
};

template <class Operator>
struct Descriptor : KnownDescriptor {
  Descriptor(const InfiniopHandle& handle, std::shared_ptr<const Operator> shared)
      : KnownDescriptor(handle, Operator::kKind), op(std::move(shared)) {}

  // Shared with what is queued: a descriptor may be destroyed before that has run.
  const std::shared_ptr<const Operator> op;
};

// SUCCESS, and the descriptor, if it is one of this operator, for this device.
template <class Operator>
infiniStatus_t find(InfiniopDescriptor* desc, Descriptor<Operator>** found) {
  if (desc == nullptr) return INFINI_STATUS_BAD_PARAM;
  if (desc->device != INFINI_DEVICE_CPU) return INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
  auto* const known = static_cast<KnownDescriptor*>(desc);
  if (known->kind != Operator::kKind) return INFINI_STATUS_BAD_PARAM;
  *found = static_cast<Descriptor<Operator>*>(known);
  return INFINI_STATUS_SUCCESS;
}

// `arguments` go to the operator's constructor, which throws Error for what it refuses.
template <class Operator, class... Arguments>
infiniStatus_t create(const InfiniopHandle& handle, InfiniopDescriptor** desc_ptr,
                      const Arguments&... arguments) {
  if (handle.device != INFINI_DEVICE_CPU) return INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
  *desc_ptr = new Descriptor<Operator>(handle, std::make_shared<const Operator>(arguments...));
  return INFINI_STATUS_SUCCESS;
}

template <class Operator>
infiniStatus_t workspace_size(InfiniopDescriptor* desc, std::size_t* size) {
  Descriptor<Operator>* own = nullptr;
  if (const infiniStatus_t status = find(desc, &own); status != INFINI_STATUS_SUCCESS) {
    return status;
  }
  if (size == nullptr) return INFINI_STATUS_BAD_PARAM;
  *size = own->op->workspace_bytes();
  return INFINI_STATUS_SUCCESS;
}

template <class Operator>
infiniStatus_t compute(InfiniopDescriptor* desc, void* workspace, std::size_t workspace_bytes,
                       const typename Operator::Data& data, void* stream) {
  return guarded([&] {
    Descriptor<Operator>* own = nullptr;
    if (const infiniStatus_t status = find(desc, &own); status != INFINI_STATUS_SUCCESS) {
      return status;
    }
    const Operator& op = *own->op;
    const std::size_t needed = op.workspace_bytes();
    if (workspace_bytes < needed) return Operator::kTooSmallWorkspace;
    if (workspace == nullptr && needed > 0) return INFINI_STATUS_BAD_PARAM;
    if (!op.has_all(data)) return INFINI_STATUS_BAD_PARAM;
    try {
      op.check_memory(data, workspace, needed);
    } catch (const Error&) {
      return INFINI_STATUS_BAD_PARAM;  // not the layout of a descriptor, but a pointer
    }
    if (stream == nullptr) {
      op.run(data, workspace);
      return INFINI_STATUS_SUCCESS;
    }
    static const WaitAtExit wait_at_exit([] { infinirtDeviceSynchronize(); });
    return launch(stream, [shared = own->op, data, workspace] { shared->run(data, workspace); });
  });
}

// Nothing is done to a descriptor of another device.
template <class Operator>
infiniStatus_t destroy(InfiniopDescriptor* desc) {
  if (desc == nullptr) return INFINI_STATUS_SUCCESS;
  Descriptor<Operator>* own = nullptr;
  const infiniStatus_t status = find(desc, &own);
  delete own;
  return status;
}

}  // namespace backops::infini
