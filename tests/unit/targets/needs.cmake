add_dependencies(targets_tests board_runners)
target_compile_definitions(targets_tests PRIVATE TW_BUILD="${CMAKE_BINARY_DIR}")
# The tests of CUDA text run it in the emulator.
add_dependencies(targets_tests cuda_emulator)
target_compile_definitions(targets_tests PRIVATE TW_CUDA_EMULATOR="${TW_CUDA_EMULATOR}")
set_target_properties(targets_tests PROPERTIES BUILD_RPATH ${TW_CUDA_EMULATOR})
# NVIDIA's compiler is a package of Python, where it is installed.
if(Python_EXECUTABLE AND NOT TW_SANITIZE)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import nvidia; print(*nvidia.__path__)" OUTPUT_VARIABLE packages
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(GLOB toolkits ${packages}/cu[0-9]*)
  foreach(shard RANGE ${last})
    set_property(TEST targets_tests_${shard} APPEND PROPERTY ENVIRONMENT "CUDA_PATH=${toolkits}")
  endforeach()
endif()
