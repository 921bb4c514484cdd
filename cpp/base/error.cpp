#include "base/error.h"

namespace backops {
namespace {

using Spell = std::function<std::string(const std::string&)>;

std::string spelled(const std::string& text, const Spell& spell) {
  std::string result;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t open = text.find('{', at);
    const std::size_t close = open == std::string::npos ? open : text.find('}', open);
    if (close == std::string::npos) break;
    result.append(text, at, open - at);
    result += spell(text.substr(open + 1, close - open - 1));
    at = close + 1;
  }
  return result.append(text, at, std::string::npos);
}

}  // namespace

Error::Error(ErrorKind kind, const std::string& argument, const std::string& got,
             const std::string& rule)
    : kind_(kind), argument_(argument), got_(got), rule_(rule) {
  plain_ = message([](const std::string& name) { return name; });
}

std::string Error::message(const Spell& spell) const {
  return spelled(argument_, spell) + " is " + got_ + ", " + spelled(rule_, spell);
}

}  // namespace backops
