#include "acl/failure.h"

#include <new>

namespace backops::acl {
namespace {

struct Message {
  bool exists = false;
  std::string text;
};
thread_local Message t_message;

void remember(const char* function, const char* why) noexcept {
  try {
    t_message.text = std::string(function) + ": " + why;
    t_message.exists = true;
  } catch (...) {
    t_message.exists = false;  // no memory for the message: rather none than an old one
  }
}

}  // namespace

int report(const char* function, int no_memory, int unexpected) noexcept {
  try {
    throw;
  } catch (const Failure& failure) {
    remember(function, failure.what());
    return failure.code();
  } catch (const std::bad_alloc&) {
    remember(function, "no memory");
    return no_memory;
  } catch (const std::exception& error) {
    remember(function, error.what());
    return unexpected;
  } catch (...) {
    remember(function, "failed for an unknown reason");
    return unexpected;
  }
}

const char* recent_message() noexcept {
  return t_message.exists ? t_message.text.c_str() : nullptr;
}

}  // namespace backops::acl
