// The one way the core says no. Argument names stand in braces, `{padding}[0]`, so that each front
// end can print its own spelling of them.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "base/export.h"

namespace backops {

enum class ErrorKind : std::uint8_t { dtype, shape, param, layout };

class BACKOPS_API Error : public std::exception {
 public:
  // Reads as "<argument> is <got>, <rule>". `got` may be anything a caller wrote: braces in it are
  // left alone.
  Error(ErrorKind kind, const std::string& argument, const std::string& got,
        const std::string& rule);

  ErrorKind kind() const noexcept { return kind_; }
  const char* what() const noexcept override { return plain_.c_str(); }

  // The message with each braced name replaced by `spell(name)`.
  std::string message(const std::function<std::string(const std::string&)>& spell) const;

 private:
  ErrorKind kind_;
  std::string argument_, got_, rule_;
  std::string plain_;
};

}  // namespace backops
