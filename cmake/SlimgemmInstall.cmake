# SPDX-License-Identifier: Apache-2.0
# install and find_package(slimgemm): the library, its public headers and the slimgemm command.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/slimgemm)

install(TARGETS slimgemm EXPORT slimgemmTargets
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT slimgemmTargets NAMESPACE slimgemm:: DESTINATION ${package_dir})
if(TARGET slimgemm_cli)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(slimgemm_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS slimgemm_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# A static library leaves its own dependencies for the consumer to link.
get_target_property(library_type slimgemm TYPE)
set(SLIMGEMM_IS_STATIC OFF)
set(SLIMGEMM_NEEDS_CUDA OFF)
set(SLIMGEMM_NEEDS_HWY "")
if(library_type STREQUAL "STATIC_LIBRARY")
  set(SLIMGEMM_IS_STATIC ON)
  set(SLIMGEMM_NEEDS_CUDA ${SLIMGEMM_HAVE_CUDA})
  set(SLIMGEMM_NEEDS_HWY "${SLIMGEMM_HWY_TARGET}")
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/slimgemmConfig.cmake.in
  ${PROJECT_BINARY_DIR}/slimgemmConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/slimgemmConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/SlimgemmCuda20.cmake
              ${PROJECT_BINARY_DIR}/slimgemmConfig.cmake
              ${PROJECT_BINARY_DIR}/slimgemmConfigVersion.cmake DESTINATION ${package_dir})
