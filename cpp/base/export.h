// Marks what libbackops offers to its front ends; everything else is hidden.
#pragma once

#define BACKOPS_API __attribute__((visibility("default")))
