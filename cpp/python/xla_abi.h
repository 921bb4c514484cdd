// The part of XLA's foreign function interface that a handler meets: the layout of what XLA passes
// to it. Declared here, because XLA's own header comes with jaxlib, which a build of this package
// does not have. tests/jax/test_abi.py compares the two.
//
// XLA adds fields only at the end of a struct, and changes nothing else while the major version
// stays 0. Each struct carries its size, as the side that made it knows it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace backops::xla {

// The oldest minor version that has all of this, and the one that XLA is told.
constexpr int kMajorVersion = 0, kMinorVersion = 1;

constexpr std::int32_t kMetadataExtension = 1;
struct Extension {
  std::size_t struct_size;
  std::int32_t type;
  Extension* next;
};

struct Version {
  std::size_t struct_size;
  Extension* extensions;
  std::int32_t major, minor;
};

// Filled in by the handler, when it is called with this extension before anything else.
struct Metadata {
  std::size_t struct_size;
  Version version;
  std::uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

enum class ErrorCode : std::int32_t { invalid_argument = 3, resource_exhausted = 8, internal = 13 };
struct Error;  // XLA's
struct ErrorArguments {
  std::size_t struct_size;
  Extension* extensions;
  const char* message;
  ErrorCode code;
};
struct Api {
  std::size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*create_error)(ErrorArguments* arguments);
};

enum class ElementType : std::int32_t { s64 = 5, f16 = 10, f32 = 11, f64 = 12, bf16 = 16 };

// Dense, the last axis fastest.
constexpr std::int32_t kBufferOperand = 1;
struct Buffer {
  std::size_t struct_size;
  Extension* extensions;
  ElementType dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

// Arguments or results.
struct Operands {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t count;
  std::int32_t* types;
  void** items;
};

constexpr std::int32_t kArrayAttribute = 1;
struct Array {
  ElementType dtype;
  std::size_t count;
  void* data;
};
struct Text {
  const char* data;  // not null-terminated
  std::size_t size;
};
struct Attributes {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t count;
  std::int32_t* types;
  Text** names;
  void** items;
};

struct Call {
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  std::int32_t stage;
  Operands arguments, results;
  Attributes attributes;
};

}  // namespace backops::xla
