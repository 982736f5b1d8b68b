# Compiler settings shared by every room, and the options a user may set.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

option(BATON_TESTS "Build the tests (needs libcriterion-dev)" OFF)
set(BATON_UCX "AUTO" CACHE STRING "The UCX mover: AUTO where libucx is found, ON, OFF")
set(BATON_SANITIZE "" CACHE STRING "Value for -fsanitize=, empty for none")

option(BATON_LIBFUZZER "Fuzz targets run under libFuzzer (clang only)" OFF)

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Release keeps symbols and the always-on CHECKs; -O3 is what the kernels are written for.
set(CMAKE_C_FLAGS_RELEASE "-O3 -g")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g -DBATON_DEBUG=1")

# A product a*b+c must round the same way in every file: fused only where the code says fma.
add_compile_options(-Wall -Wextra -Wconversion -Werror -Wstrict-prototypes -Wvla
                    -Wno-unused-parameter -fno-strict-aliasing -fno-omit-frame-pointer
                    -ffp-contract=off)
# __FILE__ begins at the root of the tree, wherever that was when it was built.
add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
add_compile_definitions(_GNU_SOURCE BATON_VERSION="${PROJECT_VERSION}")
include_directories(${CMAKE_SOURCE_DIR})

if(BATON_SANITIZE)
  add_compile_options(-fsanitize=${BATON_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BATON_SANITIZE})
endif()
if(BATON_LIBFUZZER)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "BATON_LIBFUZZER needs clang, the compiler is ${CMAKE_C_COMPILER_ID}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link -Wno-error) # the tree is clean for gcc's warnings
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
