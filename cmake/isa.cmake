# The one table from instruction set to compiler flags.
set(BACKOPS_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mprfchw)
set(BACKOPS_ISA_FLAGS_avx512 ${BACKOPS_ISA_FLAGS_avx2}
    -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
# Of the "matrix" family only.
set(BACKOPS_ISA_FLAGS_avx512_bf16 ${BACKOPS_ISA_FLAGS_avx512} -mavx512bf16)
set(BACKOPS_ISA_FLAGS_amx ${BACKOPS_ISA_FLAGS_avx512} -mamx-tile -mamx-bf16)
# GCC 12 takes the undefined vectors inside its own intrinsics for uses of uninitialised variables.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  foreach(isa avx512 avx512_bf16 amx)
    list(APPEND BACKOPS_ISA_FLAGS_${isa} -Wno-uninitialized -Wno-maybe-uninitialized)
  endforeach()
endif()
