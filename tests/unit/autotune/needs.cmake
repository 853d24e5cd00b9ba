# The images of hostile kernels for the tests of measuring, and the program that measures.
foreach(board x86_64 aarch64 armv7)
  set(triple ${board}-linux-gnu)
  set(flags "")
  if(board STREQUAL "armv7")
    set(triple arm-linux-gnueabihf)
    set(flags -march=armv7-a -mfpu=neon-vfpv4 -marm)
  endif()
  set(image ${CMAKE_CURRENT_BINARY_DIR}/hostile.${board}.so)
  add_custom_command(
    OUTPUT ${image}
    COMMAND ${CMAKE_C_COMPILER} --target=${triple} ${flags} -O2 -ffreestanding -fPIC -shared -s -nostdlib -fuse-ld=lld-22 -Wl,-z,defs -Wl,-Bsymbolic
            -Wl,-z,max-page-size=65536 -o ${image} ${CMAKE_CURRENT_LIST_DIR}/hostile.c
    DEPENDS ${CMAKE_CURRENT_LIST_DIR}/hostile.c
    COMMENT "Hostile kernels for ${board}"
    VERBATIM)
  list(APPEND autotune_test_images ${image})
endforeach()
add_custom_target(autotune_test_images DEPENDS ${autotune_test_images})
add_dependencies(autotune_tests autotune_test_images tw-measure board_runners)
# GPUs are the emulator's, which this program and its children find first.
add_dependencies(autotune_tests cuda_emulator)
target_compile_definitions(autotune_tests PRIVATE TW_CUDA_EMULATOR="${TW_CUDA_EMULATOR}")
target_compile_definitions(autotune_tests PRIVATE TW_TEST_IMAGES="${CMAKE_CURRENT_BINARY_DIR}" TW_BUILD="${CMAKE_BINARY_DIR}" TW_HOSTILE_IMAGE="${CMAKE_CURRENT_BINARY_DIR}/hostile.${CMAKE_SYSTEM_PROCESSOR}.so" TW_MEASURE="$<TARGET_FILE:tw-measure>")
