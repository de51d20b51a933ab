// SPDX-License-Identifier: Apache-2.0
// The whole C++ API.
#pragma once

#include <slimgemm/device_image.hpp>
#include <slimgemm/error.hpp>
#include <slimgemm/linear.hpp>
#include <slimgemm/packed.hpp>
#include <slimgemm/plan.hpp>
#include <slimgemm/types.hpp>
