// GoogleTest and abseil_headers.h's headers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "abseil_headers.h"
