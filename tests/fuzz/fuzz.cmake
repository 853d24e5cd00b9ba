# The folders that fuzzers cover are compiled once more, instrumented, so the ordinary libraries stay as they are.
set(fuzz_flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)

foreach(folder tensor_ir relay_ir)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
  add_library(fuzz_${folder} OBJECT ${sources})
  target_compile_options(fuzz_${folder} PRIVATE ${fuzz_flags})
endforeach()
target_link_libraries(fuzz_tensor_ir PRIVATE tw_runtime)
target_link_libraries(fuzz_relay_ir PRIVATE tw_targets)

# tw_add_fuzzer(NAME RUNS CORPUS folders…): a short run in ctest; more by hand: build/tests/NAME -runs=200000 CORPUS
function(tw_add_fuzzer name runs corpus)
  add_executable(${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/${name}.cpp)
  target_compile_options(${name} PRIVATE ${fuzz_flags})
  target_link_options(${name} PRIVATE ${fuzz_flags})
  foreach(folder ${ARGN})
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:fuzz_${folder}>)
  endforeach()
  target_link_libraries(${name} PRIVATE tw_runtime)
  # New inputs go to a folder of the build tree: the first folder is where libFuzzer writes.
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${name}.corpus)
  add_test(NAME ${name} COMMAND ${name} -runs=${runs} -seed=1 -max_len=4096 -rss_limit_mb=4096
           ${CMAKE_CURRENT_BINARY_DIR}/${name}.corpus ${corpus})
endfunction()

tw_add_fuzzer(fuzz_tensor_ir_parser 20000 ${CMAKE_CURRENT_SOURCE_DIR}/files/tensor_ir tensor_ir)

# The runtime's readers; its other sources come from the library.
tw_add_fuzzer(fuzz_runtime_files 20000 ${CMAKE_CURRENT_BINARY_DIR}/runtime_corpus)
target_sources(fuzz_runtime_files PRIVATE ${CMAKE_SOURCE_DIR}/runtime/artifact.cpp ${CMAKE_SOURCE_DIR}/runtime/elf_image.cpp
                                          ${CMAKE_SOURCE_DIR}/runtime/npy.cpp ${CMAKE_SOURCE_DIR}/runtime/plan_io.cpp)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/runtime_corpus)
add_custom_target(fuzz_runtime_corpus
                  COMMAND ${CMAKE_COMMAND} -E copy_if_different ${runtime_test_images} ${CMAKE_CURRENT_BINARY_DIR}/runtime_corpus
                  DEPENDS ${runtime_test_images})
add_dependencies(fuzz_runtime_files fuzz_runtime_corpus)

# The importer and the parser of graphs; schedules and targets come from the library: neither reads what users send.
foreach(name fuzz_onnx_import fuzz_relay_ir_parser)
  set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/files/relay_ir)
  if(name STREQUAL fuzz_onnx_import)
    set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/onnx_corpus)
  endif()
  tw_add_fuzzer(${name} 5000 ${corpus} relay_ir tensor_ir)
  target_link_libraries(${name} PRIVATE tw_targets)
endforeach()
