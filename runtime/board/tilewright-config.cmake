# find_package(tilewright) → tilewright::runtime, shared, and tilewright::runtime_static, which takes C++'s library, too.
get_filename_component(tilewright_folder "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET tilewright::runtime)
  find_package(Threads REQUIRED)
  foreach(kind runtime:SHARED:so runtime_static:STATIC:a)
    string(REPLACE ":" ";" kind ${kind})
    list(GET kind 0 name)
    list(GET kind 1 type)
    list(GET kind 2 ending)
    add_library(tilewright::${name} ${type} IMPORTED)
    set_target_properties(tilewright::${name} PROPERTIES
      IMPORTED_LOCATION "${tilewright_folder}/lib/libtilewright_runtime.${ending}" IMPORTED_NO_SONAME ON
      INTERFACE_INCLUDE_DIRECTORIES "${tilewright_folder}/include")
  endforeach()
  set_target_properties(tilewright::runtime_static PROPERTIES
    INTERFACE_LINK_LIBRARIES "stdc++;m;Threads::Threads;${CMAKE_DL_LIBS}")
endif()
