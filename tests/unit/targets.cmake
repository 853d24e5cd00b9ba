target_sources(targets_tests PRIVATE ${CMAKE_CURRENT_LIST_DIR}/targets_cases.cpp)
add_dependencies(targets_tests board_runners)
target_compile_definitions(targets_tests PRIVATE TW_BUILD="${CMAKE_BINARY_DIR}")
# The tests of CUDA text compile it for the host, too.
target_compile_definitions(targets_tests PRIVATE TW_CXX_COMPILER="${CMAKE_CXX_COMPILER}")
