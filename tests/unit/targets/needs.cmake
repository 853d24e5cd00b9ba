add_dependencies(targets_tests board_runners)
target_compile_definitions(targets_tests PRIVATE TW_BUILD="${CMAKE_BINARY_DIR}")
# The tests of CUDA text run it in the emulator.
add_dependencies(targets_tests cuda_emulator)
target_compile_definitions(targets_tests PRIVATE TW_CUDA_EMULATOR="${TW_CUDA_EMULATOR}")
set_target_properties(targets_tests PROPERTIES BUILD_RPATH ${TW_CUDA_EMULATOR})
