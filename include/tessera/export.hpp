// Symbol visibility: the library is built with hidden visibility, and only what carries
// TESSERA_API is part of its binary interface.
#pragma once

#define TESSERA_API __attribute__((visibility("default")))
