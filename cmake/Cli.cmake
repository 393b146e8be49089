# The command `vow`: a program of the public API. It starts thousands of times a
# minute in scripts, so everything but libc is linked in, if that can be had: the
# time to find and bind shared libraries is most of what it would take to start.

function(vow_static_of out target library)
  find_library(${out}_A NAMES ${library} NO_CACHE)
  if(${out}_A AND VOW_SANITIZE STREQUAL "none")
    set(${out} ${${out}_A} PARENT_SCOPE)
  else()
    set(${out} ${target} PARENT_SCOPE)
  endif()
endfunction()

function(vow_add_cli)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.c)
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/cli/main.c)
  vow_static_of(uv PkgConfig::LIBUV libuv_a.a)
  vow_static_of(sodium PkgConfig::SODIUM libsodium.a)
  set(sqlite)
  if(VOW_SQLITE)
    vow_static_of(sqlite PkgConfig::SQLITE libsqlite3.a)
  endif()

  add_library(vow_cli_parts OBJECT ${sources}) # the tests link them too
  target_compile_definitions(vow_cli_parts PUBLIC _GNU_SOURCE
    $<$<BOOL:${VOW_SQLITE}>:VOW_HAVE_SQLITE>
    $<$<BOOL:${VOW_REDIS}>:VOW_HAVE_REDIS>
    $<$<BOOL:${VOW_ETCD}>:VOW_HAVE_ETCD>)
  target_include_directories(vow_cli_parts PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/cli)
  target_link_libraries(vow_cli_parts PRIVATE vow_warnings ${VOW_NEEDS})

  add_executable(vow_cli cli/main.c $<TARGET_OBJECTS:vow_cli_parts>
    $<TARGET_OBJECTS:vow_objects>)
  set_target_properties(vow_cli PROPERTIES OUTPUT_NAME vow)
  target_compile_definitions(vow_cli PRIVATE _GNU_SOURCE)
  target_include_directories(vow_cli PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/cli)
  target_link_libraries(vow_cli PRIVATE vow_warnings ${uv} ${sodium}
    ${sqlite} Threads::Threads m ${CMAKE_DL_LIBS})
  install(TARGETS vow_cli)
  vow_add_completion(bash bash-completion/completions/vow)
  vow_add_completion(zsh zsh/site-functions/_vow)
  vow_add_completion(fish fish/vendor_completions.d/vow.fish)
endfunction()

# vow_add_completion(SHELL FILE): the command prints the script, so a build for
# another machine has none.
function(vow_add_completion shell file)
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(script ${PROJECT_BINARY_DIR}/completion.${shell})
  add_custom_command(TARGET vow_cli POST_BUILD
    COMMAND vow_cli completion ${shell} > ${script}
    BYPRODUCTS ${script} VERBATIM)
  cmake_path(GET file PARENT_PATH dir)
  cmake_path(GET file FILENAME name)
  install(FILES ${script} DESTINATION ${CMAKE_INSTALL_DATADIR}/${dir}
    RENAME ${name})
endfunction()
