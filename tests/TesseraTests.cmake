# tessera_test(NAME FOLDER LABELS ...): builds all *.cpp of a folder into one Catch2 program and adds
# it to CTest, one test per source file (selected by the file's tag [#name]), so that a run is fast
# and a failure still names its file.
function(tessera_test name folder)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;SUPPORT" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  set(target test_${name})
  add_executable(${target} ${sources} ${ARG_SUPPORT} $<TARGET_OBJECTS:tessera_test_main>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/lib ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE tessera_internal)
  target_compile_definitions(${target} PRIVATE
    TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TESSERA_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  foreach(source ${sources})
    get_filename_component(stem ${source} NAME_WE)
    add_test(NAME ${name}.${stem} COMMAND ${target} --filenames-as-tags "[#${stem}]")
    set_tests_properties(${name}.${stem} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  endforeach()
endfunction()
