# The test of a network's CUDA text compiles it for the host.
target_compile_definitions(relay_ir_tests PRIVATE TW_CXX_COMPILER="${CMAKE_CXX_COMPILER}")
