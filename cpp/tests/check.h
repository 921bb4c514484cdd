// Checks for the test programs. A failed check prints its place, what was got and what was
// expected, and the program goes on. Not for use by several threads at once.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <sstream>
#include <string>

namespace backops {
namespace test {

inline long g_passed = 0;
inline long g_failed = 0;
inline char g_situation[512] = "";

// One broken kernel fails thousands of checks; the first ones say what there is to know.
constexpr long kMostPrinted = 20;

// Says in which case of a loop a check failed. Inside another, until its end.
class Situation {
 public:
  __attribute__((format(printf, 2, 3))) explicit Situation(const char* format, ...)
      : before_(g_situation) {
    std::va_list values;
    va_start(values, format);
    std::vsnprintf(g_situation, sizeof g_situation, format, values);
    va_end(values);
  }
  ~Situation() { std::snprintf(g_situation, sizeof g_situation, "%s", before_.c_str()); }
  Situation(const Situation&) = delete;
  Situation& operator=(const Situation&) = delete;

 private:
  const std::string before_;
};

template <class T>
std::string text_of(const T& value) {
  std::ostringstream text;
  text.precision(17);
  text << std::boolalpha << value;
  return text.str();
}

inline void report_failure(const char* file, int line, const char* what, const std::string& got,
                           const std::string& expected) {
  if (++g_failed > kMostPrinted) return;
  std::printf("%s:%d: %s is %s, expected %s%s%s\n", file, line, what, got.c_str(), expected.c_str(),
              g_situation[0] ? " in " : "", g_situation);
}

template <class Got, class Expected>
bool check_equal(const char* file, int line, const char* what, const Got& got,
                 const Expected& expected) {
  const bool holds = got == expected;
  if (holds) {
    ++g_passed;
  } else {
    report_failure(file, line, what, text_of(got), text_of(expected));
  }
  return holds;
}

// What main returns.
inline int finish() {
  if (g_failed > kMostPrinted) std::printf("... and %ld more\n", g_failed - kMostPrinted);
  std::printf("%ld passed, %ld failed\n", g_passed, g_failed);
  return g_failed == 0 ? 0 : 1;
}

}  // namespace test
}  // namespace backops

#define CHECK_EQUAL(got, expected) \
  ::backops::test::check_equal(__FILE__, __LINE__, #got, (got), (expected))
#define CHECK(condition)                                               \
  ::backops::test::check_equal(__FILE__, __LINE__, "(" #condition ")", \
                               static_cast<bool>(condition), true)
