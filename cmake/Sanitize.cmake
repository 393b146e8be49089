# VOW_SANITIZE instruments the whole build: a library and a program that
# disagree about it report nonsense. No finding is survived, so that none is
# overlooked. Instrumented code misleads some warnings of gcc: the presets do not
# make them errors here.
set(VOW_SANITIZE none CACHE STRING "Instrument the build: asan, tsan or none")
set_property(CACHE VOW_SANITIZE PROPERTY STRINGS none asan tsan)

if(VOW_SANITIZE STREQUAL "asan")
  set(flags -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(VOW_SANITIZE STREQUAL "tsan")
  set(flags -fsanitize=thread)
elseif(VOW_SANITIZE STREQUAL "none")
  return()
else()
  message(FATAL_ERROR "VOW_SANITIZE is asan, tsan or none")
endif()

add_compile_options(${flags} -fno-omit-frame-pointer)
add_link_options(${flags})
