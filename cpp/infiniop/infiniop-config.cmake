# find_package(infiniop) gives the targets infiniop::infinirt and infiniop::infiniop.
get_filename_component(_infini_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_infini_name infinirt infiniop)
  if(NOT TARGET infiniop::${_infini_name})
    add_library(infiniop::${_infini_name} SHARED IMPORTED)
    set_target_properties(infiniop::${_infini_name} PROPERTIES
      IMPORTED_LOCATION "${_infini_root}/lib/lib${_infini_name}.so"
      IMPORTED_NO_SONAME OFF
      INTERFACE_INCLUDE_DIRECTORIES "${_infini_root}/include")
  endif()
endforeach()
set_property(TARGET infiniop::infiniop PROPERTY INTERFACE_LINK_LIBRARIES infiniop::infinirt)
unset(_infini_name)
unset(_infini_root)
