# oneDNN as its PyPI packages install it: headers and library beside each other under one prefix, which
# Python knows. Without it, convolutions are computed by our own plain engine.

# From backops/lib of an installed package to where pip puts libdnnl.so.3: the prefix's lib folder, or
# that of a --target folder.
set(BACKOPS_ONEDNN_RPATH "$ORIGIN/../../../..:$ORIGIN/../../lib")

if(BACKOPS_ONEDNN AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/cmake/find_onednn.py"
    OUTPUT_VARIABLE BACKOPS_ONEDNN_FOUND OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE BACKOPS_ONEDNN_MISSING)
  if(BACKOPS_ONEDNN_MISSING)
    message(FATAL_ERROR "oneDNN was not found by ${Python_EXECUTABLE}: install "
      "onednn-devel-cpu-gomp and onednn-cpu-gomp, or set BACKOPS_ONEDNN=OFF")
  endif()
  list(GET BACKOPS_ONEDNN_FOUND 0 BACKOPS_ONEDNN_INCLUDE)
  list(GET BACKOPS_ONEDNN_FOUND 1 BACKOPS_ONEDNN_LIBRARY)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  set_source_files_properties(cpp/ops/conv_onednn.cpp PROPERTIES
    COMPILE_OPTIONS "-isystem;${BACKOPS_ONEDNN_INCLUDE}"
    COMPILE_DEFINITIONS BACKOPS_ONEDNN)
  target_link_libraries(backops_core PUBLIC "${BACKOPS_ONEDNN_LIBRARY}" ${OpenMP_CXX_LIBRARIES})
endif()
