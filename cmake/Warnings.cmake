# The warnings everything in this tree is compiled with. They are errors in our
# presets only: a stranger's newer compiler must not break a stranger's build.
option(VOW_WERROR "Treat warnings as errors" OFF)
set(CMAKE_COMPILE_WARNING_AS_ERROR ${VOW_WERROR})

add_library(vow_warnings INTERFACE)
target_compile_options(vow_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wconversion -Wshadow -Wvla>
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  # clang counts VOW__ASSERT(!"why") as a conversion.
  $<$<COMPILE_LANG_AND_ID:C,Clang>:-Wno-string-conversion>)
