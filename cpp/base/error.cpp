#include "base/error.h"

namespace backops {

Error::Error(ErrorKind kind, const std::string& argument, const std::string& got,
             const std::string& rule)
    : kind_(kind), text_(argument + " is " + got + ", " + rule) {
  plain_ = message([](const std::string& name) { return name; });
}

std::string Error::message(const std::function<std::string(const std::string&)>& spell) const {
  std::string result;
  std::size_t at = 0;
  while (at < text_.size()) {
    const std::size_t open = text_.find('{', at);
    const std::size_t close = open == std::string::npos ? open : text_.find('}', open);
    if (close == std::string::npos) break;
    result.append(text_, at, open - at);
    result += spell(text_.substr(open + 1, close - open - 1));
    at = close + 1;
  }
  return result.append(text_, at, std::string::npos);
}

}  // namespace backops
