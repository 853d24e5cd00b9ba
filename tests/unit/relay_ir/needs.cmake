# The tests of CUDA find the emulator first.
add_dependencies(relay_ir_tests cuda_emulator)
target_compile_definitions(relay_ir_tests PRIVATE TW_CUDA_EMULATOR="${TW_CUDA_EMULATOR}")
set_target_properties(relay_ir_tests PROPERTIES BUILD_RPATH ${TW_CUDA_EMULATOR})
# Operators run on emulated boards.
add_dependencies(relay_ir_tests board_runners)
target_compile_definitions(relay_ir_tests PRIVATE TW_BUILD="${CMAKE_BINARY_DIR}")
