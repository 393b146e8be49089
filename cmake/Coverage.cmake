# VOW_COVERAGE counts which lines run; `./dev cov` makes the report. Counters
# are atomic because tests have threads.
option(VOW_COVERAGE "Count which lines run" OFF)
if(VOW_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()
