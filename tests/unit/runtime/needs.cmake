# ELF images for the runtime's tests: the same kernels for every architecture that the runtime knows.
foreach(architecture x86_64 aarch64 arm)
  set(triple ${architecture}-linux-gnu)
  set(flags "")
  if(architecture STREQUAL "arm")
    set(triple arm-linux-gnueabihf)
    set(flags -march=armv7-a -mfpu=neon-vfpv4)
  endif()
  set(image ${CMAKE_CURRENT_BINARY_DIR}/kernels_${architecture}.so)
  add_custom_command(
    OUTPUT ${image}
    COMMAND ${CMAKE_C_COMPILER} --target=${triple} ${flags} -O2 -ffreestanding -fPIC -shared -s -nostdlib -fuse-ld=lld-22
            -Wl,-z,defs -Wl,-Bsymbolic -Wl,-z,max-page-size=65536 -o ${image} ${CMAKE_CURRENT_LIST_DIR}/kernels.c
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/kernels.c
    COMMENT "Kernels of the runtime's tests for ${architecture}"
    VERBATIM)
  list(APPEND runtime_test_images ${image})
endforeach()
# The host's kernels once more, linked the other ways: the older table of symbols, no pages that turn read-only.
set(image ${CMAKE_CURRENT_BINARY_DIR}/kernels_sysv.so)
add_custom_command(
  OUTPUT ${image}
  COMMAND ${CMAKE_C_COMPILER} -O2 -ffreestanding -fPIC -shared -nostdlib -fuse-ld=lld-22 -Wl,-z,defs -Wl,-Bsymbolic
          -Wl,--hash-style=sysv -Wl,-z,norelro -o ${image} ${CMAKE_CURRENT_LIST_DIR}/kernels.c
  DEPENDS ${CMAKE_CURRENT_LIST_DIR}/kernels.c
  VERBATIM)
list(APPEND runtime_test_images ${image})
set(image ${CMAKE_CURRENT_BINARY_DIR}/foreign.so)
add_custom_command(
  OUTPUT ${image}
  COMMAND ${CMAKE_C_COMPILER} -O2 -fPIC -shared -nostdlib -fuse-ld=lld-22 -o ${image} ${CMAKE_CURRENT_LIST_DIR}/foreign.c
  DEPENDS ${CMAKE_CURRENT_LIST_DIR}/foreign.c
  VERBATIM)
list(APPEND runtime_test_images ${image})
add_custom_target(runtime_test_images DEPENDS ${runtime_test_images})
add_dependencies(runtime_tests runtime_test_images board_runners tilewright_runtime run_artifact)
target_compile_definitions(runtime_tests PRIVATE TW_TEST_IMAGES="${CMAKE_CURRENT_BINARY_DIR}"
                           TW_BUILD="${CMAKE_BINARY_DIR}")

# The tests of the CUDA device find the emulator's libcuda first.
add_dependencies(runtime_tests cuda_emulator)
target_compile_definitions(runtime_tests PRIVATE TW_CUDA_EMULATOR="${TW_CUDA_EMULATOR}")
set_target_properties(runtime_tests PROPERTIES BUILD_RPATH ${TW_CUDA_EMULATOR})
