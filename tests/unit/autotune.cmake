# The image of hostile kernels for the tests of measuring, and the program that measures.
set(image ${CMAKE_CURRENT_BINARY_DIR}/hostile.so)
add_custom_command(
  OUTPUT ${image}
  COMMAND ${CMAKE_C_COMPILER} -O2 -ffreestanding -fPIC -shared -s -nostdlib -fuse-ld=lld-22 -Wl,-z,defs -Wl,-Bsymbolic
          -Wl,-z,max-page-size=65536 -o ${image} ${CMAKE_CURRENT_LIST_DIR}/autotune_hostile.c
  DEPENDS ${CMAKE_CURRENT_LIST_DIR}/autotune_hostile.c
  COMMENT "Hostile kernels"
  VERBATIM)
add_custom_target(autotune_test_images DEPENDS ${image})
add_dependencies(autotune_tests autotune_test_images tw-measure)
target_compile_definitions(autotune_tests PRIVATE TW_TEST_IMAGES="${CMAKE_CURRENT_BINARY_DIR}" TW_HOSTILE_IMAGE="${image}" TW_MEASURE="$<TARGET_FILE:tw-measure>")
