# The scripts of the store on Redis, with their hashes, as a C file:
# vow__redis_scripts[].
#
#   cmake -DOUT=redis_lua.c -DDIR=src/store/redis/lua -P cmake/lua.cmake
#
# makes the file; included, this file has vow_add_lua(OUT) for the build. Lines
# of comment, empty lines and the blanks at the beginning of a line are left
# out: servers keep the text, and hash the text. A line "--@ NAME" is replaced
# by NAME.lua, for lines that several scripts share.
#
# vow_add_lua(OUT TABLE CLOCK) makes a table of another name, whose scripts take
# the time from the file CLOCK: tests set the clock.

set(VOW_LUA_NAMES claim pulse commit peek forget cancel write read acquire
  release renew limit pool) # as in enum vow__script
set(VOW_LUA_SHARED # a part may have those behind it
  places promote refresher view clock)

function(vow_lua_literal file ret ret_sha)
  file(READ "${file}" text)
  get_filename_component(dir "${file}" DIRECTORY)
  string(REGEX REPLACE "\n +--@" "\n--@" text "${text}")
  foreach(shared IN LISTS VOW_LUA_SHARED)
    set(source "${dir}/${shared}.lua")
    if(shared STREQUAL clock AND CLOCK)
      set(source "${CLOCK}")
    endif()
    file(READ "${source}" part)
    string(REPLACE "\n--@ ${shared}\n" "\n${part}\n" text "${text}")
  endforeach()
  if(text MATCHES "--@ ")
    message(FATAL_ERROR "${file}: a part is not in VOW_LUA_SHARED")
  endif()
  if(text MATCHES "\\[=*\\[")
    message(FATAL_ERROR "${file}: long brackets may have lines in them")
  endif()
  if(text MATCHES "[\t\r]")
    message(FATAL_ERROR "${file}: there is a tab or a return in it")
  endif()
  string(PREPEND text "\n")
  string(APPEND text "\n")
  string(REGEX REPLACE "\n +" "\n" text "${text}")
  string(REGEX REPLACE "\n--[^\n]*" "" text "${text}")
  string(REGEX REPLACE " *\n+" "\n" text "${text}")
  string(REGEX REPLACE " +\n" "\n" text "${text}")
  string(LENGTH "${text}" length)
  if(length LESS 3)
    message(FATAL_ERROR "${file}: it is empty")
  endif()
  math(EXPR length "${length} - 2") # without the lines' ends around it
  string(SUBSTRING "${text}" 1 ${length} text)
  string(SHA1 sha "${text}") # of what the compiler makes of the literal
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "?" "\\?" text "${text}") # no trigraphs
  string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
  set(${ret} "\"${text}\"" PARENT_SCOPE)
  set(${ret_sha} "\"${sha}\"" PARENT_SCOPE)
endfunction()

function(vow_lua_write out dir table)
  string(CONCAT c
    "/* SPDX-License-Identifier: MIT */\n"
    "/* Made from the scripts of the store by cmake/lua.cmake. */\n"
    "#include \"store/redis/redis_internal.h\"\n\n"
    "extern const struct vow__redis_script ${table}[VOW__LUA_N];\n"
    "#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n\n"
    "const struct vow__redis_script ${table}[VOW__LUA_N] = {\n")
  foreach(name IN LISTS VOW_LUA_NAMES)
    set(file "${dir}/${name}.lua")
    if(NOT EXISTS "${file}")
      message(FATAL_ERROR "${file} is missing")
    endif()
    vow_lua_literal("${file}" literal sha)
    string(TOUPPER ${name} upper)
    string(APPEND c "    [VOW__LUA_${upper}] =\n"
      "    {\"${name}\",\n     ${literal},\n     ${sha}},\n")
  endforeach()
  list(LENGTH VOW_LUA_NAMES n)
  string(APPEND c "};\n\n"
    "_Static_assert(VOW__LUA_N == ${n}, \"as in cmake/lua.cmake\");\n")
  file(WRITE "${out}" "${c}")
endfunction()

# For the build: makes OUT when a script changes. With a TABLE and a CLOCK, see
# above.
function(vow_add_lua out)
  set(dir ${PROJECT_SOURCE_DIR}/src/store/redis/lua)
  set(script ${PROJECT_SOURCE_DIR}/cmake/lua.cmake)
  set(files ${VOW_LUA_NAMES} ${VOW_LUA_SHARED})
  list(TRANSFORM files PREPEND ${dir}/)
  list(TRANSFORM files APPEND .lua)
  set(options)
  if(ARGC GREATER 1)
    set(options -DTABLE=${ARGV1} -DCLOCK=${ARGV2})
    list(APPEND files ${ARGV2})
  endif()
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DDIR=${dir} ${options} -P ${script}
    DEPENDS ${files} ${script} VERBATIM)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  if(NOT OUT OR NOT DIR)
    message(FATAL_ERROR "cmake -DOUT=FILE.c -DDIR=FOLDER -P cmake/lua.cmake")
  endif()
  if(NOT TABLE)
    set(TABLE vow__redis_scripts)
  endif()
  vow_lua_write("${OUT}" "${DIR}" "${TABLE}")
endif()
