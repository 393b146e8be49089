# The examples and the test program, and how ctest learns of them.

# TSan of gcc 12 and clang 14 cannot place its shadow when the kernel moves
# mappings by more than 28 bits: the program then runs without moving them.
set(VOW_LAUNCHER)
if(VOW_SANITIZE STREQUAL "tsan" AND EXISTS /proc/sys/vm/mmap_rnd_bits)
  file(READ /proc/sys/vm/mmap_rnd_bits bits)
  if(bits GREATER 28)
    set(VOW_LAUNCHER setarch -R)
  endif()
endif()

# Every program in examples is a test too. They are a user's code: the
# public header, the shared library, nothing else.
function(vow_add_examples)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
  add_custom_target(examples)
  if(NOT VOW_SQLITE)
    list(FILTER sources EXCLUDE REGEX "/query_cache[.]c$")
  endif()
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    add_executable(example-${name} ${source})
    set_target_properties(example-${name} PROPERTIES
      OUTPUT_NAME ${name}
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_link_libraries(example-${name} PRIVATE vow::vow vow_warnings)
    if(name STREQUAL "query_cache") # it has a database of its own
      target_link_libraries(example-${name} PRIVATE PkgConfig::SQLITE)
    endif()
    add_dependencies(examples example-${name})
    add_test(NAME example.${name}
      COMMAND ${VOW_LAUNCHER} $<TARGET_FILE:example-${name}>)
    set_tests_properties(example.${name} PROPERTIES TIMEOUT 300)
  endforeach()
endfunction()

# Compiling the tests with sanitizers takes four times as long as compiling what
# they test: `./dev ci` turns off the options that look for defects in tests only.
set(VOW_TEST_OPTIONS "" CACHE STRING "Options for the C files of the tests, last")

# One program, vow-tests, with the harness in tests/lib. It links the static
# library, and so reaches the hidden symbols too. ctest asks it for the names of
# its tests when it starts: nobody keeps a list.
function(vow_add_tests)
  file(GLOB sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/tests/lib/*.c
    ${PROJECT_SOURCE_DIR}/tests/unit/*_test.c
    ${PROJECT_SOURCE_DIR}/tests/contract/*.c
    ${PROJECT_SOURCE_DIR}/tests/sim/*_test.c)
  if(NOT VOW_REDIS)
    list(FILTER sources EXCLUDE REGEX
      "/(redis_|rig_redis|resp_|stream_|tls_)[^/]*$")
  endif()
  if(NOT VOW_ETCD)
    list(FILTER sources EXCLUDE REGEX "/(etcd_|rig_etcd|http_)[^/]*$")
  endif()
  if(NOT VOW_SQLITE)
    list(FILTER sources EXCLUDE REGEX "/tests/[^/]*/[^/]*sqlite[^/]*$")
  endif()
  if(NOT sources)
    return()
  endif()
  if(VOW_REDIS) # the scripts, with a clock that tests set
    set(scripts ${PROJECT_BINARY_DIR}/redis_lua_timed.c)
    vow_add_lua(${scripts} vow__redis_scripts_timed
      ${PROJECT_SOURCE_DIR}/tests/lib/redis_clock.lua)
    list(APPEND sources ${scripts})
  endif()
  add_executable(vow-tests ${sources})
  target_compile_options(vow-tests PRIVATE ${VOW_TEST_OPTIONS})
  target_compile_definitions(vow-tests PRIVATE _GNU_SOURCE
    $<$<BOOL:${VOW_SQLITE}>:VOW_HAVE_SQLITE>
    $<$<BOOL:${VOW_REDIS}>:VOW_HAVE_REDIS>
    $<$<BOOL:${VOW_ETCD}>:VOW_HAVE_ETCD>)
  target_include_directories(vow-tests PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests/lib
    ${PROJECT_SOURCE_DIR}/tests/contract)
  target_link_libraries(vow-tests PRIVATE
    vow_static vow_warnings ${VOW_NEEDS}
    $<$<BOOL:${VOW_REDIS}>:PkgConfig::OPENSSL>)

  vow_list_tests(vow-tests)
endfunction()

# What tests/multi/campaign sets on each other: a process of it, and a slow disk
# with a clock that is set, to be preloaded. vow-replay explains what the
# processes were answered.
function(vow_add_campaign)
  add_executable(vow-worker ${PROJECT_SOURCE_DIR}/tests/multi/worker.c)
  target_compile_definitions(vow-worker PRIVATE _GNU_SOURCE)
  target_link_libraries(vow-worker PRIVATE
    vow_static vow_warnings ${VOW_NEEDS})
  add_executable(vow-replay ${PROJECT_SOURCE_DIR}/tests/multi/replay.c
    ${PROJECT_SOURCE_DIR}/tests/lib/replay.c
    ${PROJECT_SOURCE_DIR}/tests/lib/replay_step.c
    ${PROJECT_SOURCE_DIR}/tests/lib/replay_story.c)
  target_include_directories(vow-replay PRIVATE
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests/lib)
  target_link_libraries(vow-replay PRIVATE
    vow_static vow_warnings ${VOW_NEEDS})
  add_library(vow-shim MODULE ${PROJECT_SOURCE_DIR}/tests/multi/shim.c)
  target_compile_definitions(vow-shim PRIVATE _GNU_SOURCE)
  target_link_libraries(vow-shim PRIVATE vow_warnings ${CMAKE_DL_LIBS})
  set_target_properties(vow-shim PROPERTIES PREFIX "")
endfunction()

# The parts of the command: they link without its main(). What it does as a whole
# is tested by tests/cli/run.
function(vow_add_cli_tests)
  file(GLOB sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/tests/cli/*_test.c)
  add_executable(vow-cli-tests ${PROJECT_SOURCE_DIR}/tests/lib/harness.c
    ${sources} $<TARGET_OBJECTS:vow_cli_parts>)
  target_compile_options(vow-cli-tests PRIVATE ${VOW_TEST_OPTIONS})
  target_compile_definitions(vow-cli-tests PRIVATE _GNU_SOURCE)
  target_include_directories(vow-cli-tests PRIVATE
    ${PROJECT_SOURCE_DIR}/cli ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/tests/lib)
  target_link_libraries(vow-cli-tests PRIVATE
    vow_static vow_warnings ${VOW_NEEDS} m)
  vow_list_tests(vow-cli-tests)
endfunction()

function(vow_list_tests program)
  set(VOW_TESTS_FILE $<TARGET_FILE:${program}>)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/ListTests.cmake.in
    ${PROJECT_BINARY_DIR}/${program}.cmake.in @ONLY)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${program}.cmake
    INPUT ${PROJECT_BINARY_DIR}/${program}.cmake.in)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY
    TEST_INCLUDE_FILES ${PROJECT_BINARY_DIR}/${program}.cmake)
endfunction()
