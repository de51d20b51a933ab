# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS slimgemm EXPORT slimgemmTargets
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET slimgemm_cli)
  install(TARGETS slimgemm_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT slimgemmTargets NAMESPACE slimgemm::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/slimgemm)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/slimgemmConfig.cmake.in
  ${PROJECT_BINARY_DIR}/slimgemmConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/slimgemm)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/slimgemmConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/slimgemmConfig.cmake ${PROJECT_BINARY_DIR}/slimgemmConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/slimgemm)
