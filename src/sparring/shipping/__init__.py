"""Artefacts of a trained model: conversion, cards, and the verification of what was converted."""
