# Fuzzers on the ordinary libraries, compiled once for these and for the tests.

foreach(library tw_runtime tw_tensor_ir tw_relay_ir tw_frontends)
  target_compile_options(${library} PRIVATE -fsanitize=fuzzer-no-link
                         -fsanitize-coverage-allowlist=${CMAKE_CURRENT_SOURCE_DIR}/fuzz/coverage.txt)
endforeach()

# tw_add_fuzzer(NAME RUNS CORPUS library): a short run in ctest; more by hand: build/tests/NAME -runs=200000 CORPUS
function(tw_add_fuzzer name runs corpus library)
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/${name}.cpp)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${library})
  # New inputs go to a folder of the build tree: the first folder is where libFuzzer writes.
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${name}.corpus)
  add_test(NAME ${name} COMMAND ${name} -runs=${runs} -seed=1 -max_len=4096 -rss_limit_mb=4096
           ${CMAKE_CURRENT_BINARY_DIR}/${name}.corpus ${corpus})
endfunction()

tw_add_fuzzer(fuzz_tensor_ir_parser 20000 ${CMAKE_CURRENT_SOURCE_DIR}/files/tensor_ir tw_tensor_ir)

# The runtime's readers.
tw_add_fuzzer(fuzz_runtime_files 20000 ${CMAKE_CURRENT_BINARY_DIR}/runtime_corpus tw_runtime)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/runtime_corpus)
add_custom_target(fuzz_runtime_corpus
                  COMMAND ${CMAKE_COMMAND} -E copy_if_different ${runtime_test_images} ${CMAKE_CURRENT_BINARY_DIR}/runtime_corpus
                  DEPENDS ${runtime_test_images})
add_dependencies(fuzz_runtime_files fuzz_runtime_corpus)

# The importer and the parser of graphs.
tw_add_fuzzer(fuzz_onnx_import 5000 ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/onnx_corpus tw_frontends)
tw_add_fuzzer(fuzz_relay_ir_parser 5000 ${CMAKE_CURRENT_SOURCE_DIR}/files/relay_ir tw_relay_ir)
