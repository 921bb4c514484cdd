// The parts of DLPack's binary interface that arrays.cpp speaks: its layout is fixed by the
// standard (versions 0.x unversioned, 1.x versioned), its wording here is our own.
#pragma once

#include <cstdint>

namespace backops::dlpack {

struct Device {
  std::int32_t type, id;
};
enum : std::int32_t { kCpu = 1, kCudaHost = 3, kRocmHost = 11 };  // memory a CPU can read

struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
enum : std::uint8_t { kInt = 0, kUnsigned = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: C order
  std::uint64_t byte_offset;
};

struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct Version {
  std::uint32_t major, minor;
};
constexpr std::uint64_t kReadOnly = 1;

struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

// type(array).__dlpack_c_exchange_api__: the same exchange without a Python call per array.
struct ExchangeApi {
  Version version;
  ExchangeApi* older;
  int (*allocate)(Tensor* prototype, ManagedVersioned** result, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*from_object)(void* object, ManagedVersioned** result);
  int (*to_object)(ManagedVersioned* tensor, void** result);
  int (*view_object)(void* object, Tensor* result);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

}  // namespace backops::dlpack
