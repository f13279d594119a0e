package test

var MemoryDirIn = memoryDirIn
