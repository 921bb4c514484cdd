# oneDNN as its PyPI packages install it; Python knows where. Its library goes into our package, beside
# libbackops: pip's --target leaves out the folder it comes in, and C programs know no virtual
# environment. Without oneDNN, convolutions of few channels run on our own kernels, with lanes that are empty.

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
  list(SUBLIST BACKOPS_ONEDNN_FOUND 2 -1 BACKOPS_ONEDNN_LICENSES)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_sources(backops_core PRIVATE cpp/ops/onednn_conv.cpp)
  set_source_files_properties(
    cpp/ops/conv_onednn.cpp cpp/ops/onednn_conv.cpp PROPERTIES
    COMPILE_OPTIONS "-isystem;${BACKOPS_ONEDNN_INCLUDE}"
    COMPILE_DEFINITIONS BACKOPS_ONEDNN)
  target_link_libraries(backops_core PUBLIC "${BACKOPS_ONEDNN_LIBRARY}" ${OpenMP_CXX_LIBRARIES})
  install(PROGRAMS "${BACKOPS_ONEDNN_LIBRARY}" DESTINATION backops/lib RENAME libdnnl.so.3)
  install(FILES ${BACKOPS_ONEDNN_LICENSES} DESTINATION backops/lib/onednn)
endif()
